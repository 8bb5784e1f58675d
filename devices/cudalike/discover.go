package cudalike

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/sysfs"
)

// describe asks a device for its facts, with all of its memory, and how much of
// that is free. For that it makes it ready for a moment.
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
		// Only some cards have one; without it a record is told apart by less.
		whole.UUID, _ = t.uuid(ordinal)
	}
	free, whole.Total, err = memoryOf(t, ordinal)
	return whole, free, err
}

// acquire makes a device ready on a thread of its own.
func acquire(t *table, ordinal int) (binding, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return t.acquire(ordinal)
}

// memoryOf asks how much memory a device has that is not open.
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
	left, all, err := t.memory()
	return devices.Size(left), devices.Size(all), err
}
