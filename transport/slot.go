package transport

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// Slot is one pinned host buffer, page aligned and outside Go's heap. It has one
// holder, from Get to Release. Its initial content is left over from the previous
// holder: never expose bytes of it that were not written first.
type Slot struct {
	pool *SlotPool
	mem  []byte
	n    devices.Size
	held atomic.Bool
	// pins are accessed by the holder; an idle slot keeps them.
	pins []pin
}

// pin is the registration of a slot's memory for one device. A device that can't
// pin has an entry too, so that it is asked only once.
type pin struct {
	device devices.Device
	unpin  func()
}

func newSlot(p *SlotPool, size devices.Size) (*Slot, error) {
	mem, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map a pinned slot of %v: %w", size, err)
	}
	// A limit on locked memory (ulimit -l) leaves unlocked memory, which works:
	// the devices pin for themselves.
	_ = unix.Mlock(mem)
	return &Slot{pool: p, mem: mem}, nil
}

// Bytes returns the buffer, with the requested length. It must not be accessed
// after Release.
func (s *Slot) Bytes() []byte { return s.mem[:s.n:s.n] }

// Pin locks the slot's memory for a device, if the device can, so that its copies
// run at full speed. The slot stays pinned while the pool recycles it. If the
// device fails to pin it, the slot remains ordinary memory for that device, and
// Stats.PinFailures counts it. Preconditions: the caller holds the slot.
func (s *Slot) Pin(d devices.Device) {
	if slices.ContainsFunc(s.pins, func(p pin) bool { return p.device == d }) {
		return
	}
	unpin, pinned := devices.PinHost(d, s.mem)
	if _, able := d.(devices.Pinner); able && !pinned {
		s.pool.notPinned.Add(1)
	}
	s.pins = append(s.pins, pin{device: d, unpin: unpin})
}

// Release returns the slot to its pool. A second Release is a bug of the caller
// and panics: continuing would assign one buffer to two holders.
func (s *Slot) Release() {
	if !s.held.CompareAndSwap(true, false) {
		panic(errors.New("transport: slot released twice"))
	}
	s.pool.giveBack(s)
}

// destroy returns the memory to the kernel.
func (s *Slot) destroy() error {
	for _, p := range s.pins {
		p.unpin()
	}
	if err := unix.Munmap(s.mem); err != nil {
		return fmt.Errorf("unmap a pinned slot of %d bytes: %w", len(s.mem), err)
	}
	return nil
}

func destroy(slots []*Slot) error {
	var errs []error
	for _, s := range slots {
		errs = append(errs, s.destroy())
	}
	return errors.Join(errs...)
}
