package sim

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
)

// PinnedDevice is a simulated discrete card: it registers host memory, and tracks which
// memory is registered. It refuses what a vendor's library would refuse; a mistake that
// would make real hardware write through a stale address is recorded as a fault, which
// makes the next copy fail.
type PinnedDevice struct {
	*Device

	pinMu sync.Mutex
	// +checklocks:pinMu
	pins map[*pin]struct{}
	// +checklocks:pinMu
	counts PinCounts
	// fault is a mistake of the caller that was detected too late to be refused.
	// +checklocks:pinMu
	fault error
}

// pin is a range of registered host memory.
type pin struct {
	first, end uintptr
	users      int
}

// PinCounts report how a PinnedDevice was used.
type PinCounts struct {
	// Ranges and Bytes count the memory that is registered at present.
	Ranges int
	Bytes  devices.Size
	// Calls counts the registrations of memory.
	Calls int
	// Pinned and Pageable are the bytes copied from and to registered and unregistered
	// memory.
	Pinned, Pageable devices.Size
}

func newPinned(d *Device) *PinnedDevice {
	return &PinnedDevice{Device: d, pins: map[*pin]struct{}{}}
}

// PinHost registers p. It fails if p overlaps registered memory, or if the device is
// closed.
func (d *PinnedDevice) PinHost(p []byte) (unpin func(), err error) {
	if _, err := d.Usage(); err != nil {
		return nil, err
	}
	first := addressOf(p)
	fresh := &pin{first: first, end: first + uintptr(len(p))}
	d.pinMu.Lock()
	defer d.pinMu.Unlock()
	for old := range d.pins {
		if fresh.first < old.end && old.first < fresh.end {
			return nil, fmt.Errorf("%s: host memory is already registered: %w", d.info.Name, devices.ErrDevice)
		}
	}
	d.pins[fresh] = struct{}{}
	d.counts.Ranges++
	d.counts.Calls++
	d.counts.Bytes += devices.Size(len(p))
	return sync.OnceFunc(func() { d.unpin(fresh) }), nil
}

func (d *PinnedDevice) unpin(p *pin) {
	d.pinMu.Lock()
	defer d.pinMu.Unlock()
	if p.users > 0 {
		d.fault = fmt.Errorf("%s: host memory was unregistered while %d copies used it: %w", d.info.Name, p.users, devices.ErrDevice)
	}
	delete(d.pins, p)
	d.counts.Ranges--
	d.counts.Bytes -= devices.Size(p.end - p.first)
}

// Pins returns how the device was used, and the first mistake in its use.
func (d *PinnedDevice) Pins() (PinCounts, error) {
	d.pinMu.Lock()
	defer d.pinMu.Unlock()
	return d.counts, d.fault
}

// begin returns the registration that contains a copy's host memory; nil if the memory is
// not registered.
func (d *PinnedDevice) begin(p []byte) (*pin, error) {
	first := addressOf(p)
	end := first + uintptr(len(p))
	d.pinMu.Lock()
	defer d.pinMu.Unlock()
	if d.fault != nil {
		return nil, d.fault
	}
	for g := range d.pins {
		if first >= g.end || end <= g.first {
			continue
		}
		if first < g.first || end > g.end {
			return nil, fmt.Errorf("%s: host memory is registered only in part: %w", d.info.Name, devices.ErrDevice)
		}
		g.users++
		d.counts.Pinned += devices.Size(len(p))
		return g, nil
	}
	d.counts.Pageable += devices.Size(len(p))
	return nil, nil //nolint:nilnil // unregistered memory is not an error
}

func (d *PinnedDevice) end(g *pin) {
	if g == nil {
		return
	}
	d.pinMu.Lock()
	defer d.pinMu.Unlock()
	g.users--
}

// CopyIn copies bytes from host to device.
func (d *PinnedDevice) CopyIn(ctx context.Context, dst devices.Span, src []byte) error {
	g, err := d.begin(src)
	if err != nil {
		return err
	}
	defer d.end(g)
	return d.Device.CopyIn(ctx, dst, src)
}

// CopyOut copies bytes from device to host.
func (d *PinnedDevice) CopyOut(ctx context.Context, dst []byte, src devices.Span) error {
	g, err := d.begin(dst)
	if err != nil {
		return err
	}
	defer d.end(g)
	return d.Device.CopyOut(ctx, dst, src)
}
