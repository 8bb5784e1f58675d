package sim

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
)

// PinnedDevice is a simulated discrete card: it registers host memory, and
// tells apart what is registered. What a vendor's library refuses is refused
// here, and what it would turn into a write through a stale address is a fault
// that the next copy fails with.
type PinnedDevice struct {
	*Device

	pinMu sync.Mutex
	// +checklocks:pinMu
	pins map[*pin]struct{}
	// +checklocks:pinMu
	counts PinCounts
	// fault is a mistake of the caller's that was seen too late to be refused.
	// +checklocks:pinMu
	fault error
}

// pin is host memory that is registered.
type pin struct {
	first, end uintptr
	users      int
}

// PinCounts tell what a PinnedDevice was used for.
type PinCounts struct {
	// Ranges and Bytes are what is registered now.
	Ranges int
	Bytes  devices.Size
	// Calls counts the registrations of memory.
	Calls int
	// Pinned and Pageable are the bytes copied from and to memory that was
	// registered and that was not.
	Pinned, Pageable devices.Size
}

func newPinned(d *Device) *PinnedDevice {
	return &PinnedDevice{Device: d, pins: map[*pin]struct{}{}}
}

// PinHost registers p. Memory that overlaps what is registered is refused, as
// is memory of a closed device.
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
			return nil, fmt.Errorf("%s: host memory is registered already: %w", d.info.Name, devices.ErrDevice)
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
		d.fault = fmt.Errorf("%s: host memory was given back while %d copies used it: %w", d.info.Name, p.users, devices.ErrDevice)
	}
	delete(d.pins, p)
	d.counts.Ranges--
	d.counts.Bytes -= devices.Size(p.end - p.first)
}

// Pins tells what the device was used for, and the first mistake it was used
// with.
func (d *PinnedDevice) Pins() (PinCounts, error) {
	d.pinMu.Lock()
	defer d.pinMu.Unlock()
	return d.counts, d.fault
}

// begin finds the registration that a copy's host memory lies in; nil is
// memory that is not registered.
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
			return nil, fmt.Errorf("%s: host memory is registered in part: %w", d.info.Name, devices.ErrDevice)
		}
		g.users++
		d.counts.Pinned += devices.Size(len(p))
		return g, nil
	}
	d.counts.Pageable += devices.Size(len(p))
	return nil, nil //nolint:nilnil // plain memory is no error
}

func (d *PinnedDevice) end(g *pin) {
	if g == nil {
		return
	}
	d.pinMu.Lock()
	defer d.pinMu.Unlock()
	g.users--
}

// CopyIn moves bytes host to device.
func (d *PinnedDevice) CopyIn(ctx context.Context, dst devices.Span, src []byte) error {
	g, err := d.begin(src)
	if err != nil {
		return err
	}
	defer d.end(g)
	return d.Device.CopyIn(ctx, dst, src)
}

// CopyOut moves bytes device to host.
func (d *PinnedDevice) CopyOut(ctx context.Context, dst []byte, src devices.Span) error {
	g, err := d.begin(dst)
	if err != nil {
		return err
	}
	defer d.end(g)
	return d.Device.CopyOut(ctx, dst, src)
}
