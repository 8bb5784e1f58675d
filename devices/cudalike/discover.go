package cudalike

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/sysfs"
)

// entry is one device of the machine, not opened.
type entry struct {
	ordinal     int
	model       string
	pci, uuid   string
	numa        int
	free, total devices.Size
}

// byDefault returns how much of its memory a device lends when the spec does not
// say: the runtime takes some for itself.
func (e entry) byDefault() devices.Size { return e.total / 10 * 9 }

// info returns the description of an entry as a device of n bytes.
func (e entry) info(f devices.Family, n, align devices.Size) devices.Info {
	return devices.Info{
		Name:     devices.Name(fmt.Sprintf("%s%d", f, e.ordinal)),
		Family:   f,
		Ordinal:  devices.Ordinal(e.ordinal),
		Model:    e.model,
		Total:    n,
		MaxAlloc: n,
		Align:    align,
		PCI:      e.pci,
		UUID:     e.uuid,
		NUMA:     e.numa,
	}
}

// describe asks a device for its facts, and for that makes it ready for a
// moment.
func (d *Driver) describe(t *table, ordinal int) (e entry, err error) {
	e = entry{ordinal: ordinal, numa: -1}
	if e.model, err = t.name(ordinal); err != nil {
		return entry{}, err
	}
	if t.pci != nil {
		if e.pci, err = t.pci(ordinal); err != nil {
			return entry{}, err
		}
		e.pci = strings.ToLower(e.pci)
		e.numa = sysfs.NUMANode(d.sys, e.pci)
	}
	if t.uuid != nil {
		// Only some cards have one; without it a record is told apart by less.
		e.uuid, _ = t.uuid(ordinal)
	}
	e.free, e.total, err = memoryOf(t, ordinal)
	return e, err
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

// cString is the text that a library has written into a buffer.
func cString(p []byte) string {
	text, _, _ := strings.Cut(string(p), "\x00")
	return text
}
