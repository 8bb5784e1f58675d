package cudalike

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/sysfs"
)

// describe queries the properties of a device, with all of its memory, and how much of that
// is free. It acquires the device temporarily.
func (d *Driver) describe(t *table, ordinal int) (whole devices.Info, free devices.Size, err error) {
	whole = devices.Info{
		Name:    devices.Name(fmt.Sprintf("%s%d", d.family.name, ordinal)),
		Family:  d.family.name,
		Ordinal: devices.Ordinal(ordinal),
		Align:   t.align,
		NUMA:    -1,
	}
	if whole.Model, err = t.name(ordinal); err != nil {
		return devices.Info{}, 0, err
	}
	if t.pci != nil {
		if whole.PCI, err = t.pci(ordinal); err != nil {
			return devices.Info{}, 0, err
		}
		whole.PCI = strings.ToLower(whole.PCI)
		whole.NUMA = sysfs.NUMANode(d.sys, whole.PCI)
	}
	if t.uuid != nil {
		// Only some cards have one; without it, a record can only be matched by less.
		whole.UUID, _ = t.uuid(ordinal)
	}
	free, whole.Total, err = memoryOf(t, ordinal)
	return whole, free, err
}

// acquire acquires a device with the goroutine locked to its thread.
func acquire(t *table, ordinal int) (binding, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return t.acquire(ordinal)
}

// memoryOf queries the memory of a device that is not open.
func memoryOf(t *table, ordinal int) (free, total devices.Size, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := t.acquire(ordinal)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, t.release(c)) }()
	if err = t.set(c); err != nil {
		return 0, 0, err
	}
	return t.memory()
}
