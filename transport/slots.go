package transport

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
)

// SlotPool allocates pinned host buffers and takes them back for reuse. Sizes are
// rounded up to a power of two, at least a page, so that a few sizes of slots
// serve every request. It may be used from any goroutine.
//
// Waiters are served in order of arrival. A holder of one slot that waits for
// another can deadlock with itself: use TryGet for further slots.
type SlotPool struct {
	max devices.Size
	// notPinned counts the slots that a device could not lock.
	notPinned atomic.Uint64

	mu sync.Mutex
	// idle holds the slots kept for reuse, by size, last in first out, since the
	// cache may still hold the one returned last.
	// +checklocks:mu
	idle map[devices.Size][]*Slot
	// +checklocks:mu
	total devices.Size
	// +checklocks:mu
	used devices.Size
	// waiting is in order of arrival.
	// +checklocks:mu
	waiting []*waiter
	// +checklocks:mu
	closed bool
}

// waiter is a Get that found the pool exhausted. Its channel has room for the one
// grant that it receives.
type waiter struct {
	size    devices.Size
	granted chan grant
}

// grant is the right to hold size bytes: an idle slot, or, if slot is nil,
// permission to create one. Victims are idle slots that must be freed for it.
type grant struct {
	slot    *Slot
	victims []*Slot
	err     error
}

// NewSlotPool makes a pool that holds at most limit bytes, for callers that keep
// their slots while they wait for other work: slots of the engine's pool would
// then be unavailable to the work that they wait for.
func NewSlotPool(limit devices.Size) *SlotPool {
	return &SlotPool{max: limit, idle: map[devices.Size][]*Slot{}}
}

// slotSize is the size, in bytes, of a slot for n bytes.
func slotSize(n devices.Size) devices.Size {
	size := pageSize
	for size < n {
		size *= 2
	}
	return size
}

// Get returns a slot of n bytes, and waits for one while the pool is
// exhausted.
//
// Errors: the context's, when it ends first; devices.ErrRange for n = 0 or more
// than the pool may ever hold; devices.ErrClosed; and the kernel's when it has no
// memory left.
func (p *SlotPool) Get(ctx context.Context, n devices.Size) (*Slot, error) {
	if n == 0 || n > p.max || slotSize(n) > p.max {
		return nil, fmt.Errorf("pinned slot of %d bytes exceeds the pool's limit of %v: %w", uint64(n), p.max, devices.ErrRange)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("pinned slot: %w", err)
	}
	size := slotSize(n)
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errPoolClosed()
	}
	if len(p.waiting) == 0 {
		if g, ok := p.grantLocked(size); ok {
			p.mu.Unlock()
			return p.redeem(g, size, n)
		}
	}
	w := &waiter{size: size, granted: make(chan grant, 1)}
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	select {
	case g := <-w.granted:
		return p.redeem(g, size, n)
	case <-ctx.Done():
		p.abandon(w, n)
		return nil, fmt.Errorf("wait for a pinned slot: %w", ctx.Err())
	}
}

// TryGet is Get without waiting: ok is false if Get would wait or fail.
func (p *SlotPool) TryGet(n devices.Size) (*Slot, bool) {
	if n == 0 || n > p.max || slotSize(n) > p.max {
		return nil, false
	}
	size := slotSize(n)
	p.mu.Lock()
	if p.closed || len(p.waiting) > 0 {
		p.mu.Unlock()
		return nil, false
	}
	g, ok := p.grantLocked(size)
	p.mu.Unlock()
	if !ok {
		return nil, false
	}
	s, err := p.redeem(g, size, n)
	return s, err == nil
}

// grantLocked reserves size bytes if the pool may hold them now.
//
// +checklocks:p.mu
func (p *SlotPool) grantLocked(size devices.Size) (grant, bool) {
	if kept := p.idle[size]; len(kept) > 0 {
		p.idle[size] = kept[:len(kept)-1]
		p.used += size
		return grant{slot: kept[len(kept)-1]}, true
	}
	if p.used+size > p.max {
		return grant{}, false
	}
	var victims []*Slot
	for other, kept := range p.idle {
		for len(kept) > 0 && p.total+size > p.max {
			victims = append(victims, kept[0])
			kept = kept[1:]
			p.total -= other
		}
		p.idle[other] = kept
	}
	p.total += size
	p.used += size
	return grant{victims: victims}, true
}

// serveLocked grants slots to the first waiters in the queue, as far as possible.
//
// +checklocks:p.mu
func (p *SlotPool) serveLocked() {
	for len(p.waiting) > 0 {
		g, ok := p.grantLocked(p.waiting[0].size)
		if !ok {
			return
		}
		p.waiting[0].granted <- g
		p.waiting = slices.Delete(p.waiting, 0, 1)
	}
}

// redeem turns a grant into a slot of n bytes.
func (p *SlotPool) redeem(g grant, size, n devices.Size) (*Slot, error) {
	if g.err != nil {
		return nil, g.err
	}
	err := destroy(g.victims)
	s := g.slot
	if err == nil && s == nil {
		s, err = newSlot(p, size)
	}
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.used -= size
		p.total -= size
		p.serveLocked()
		return nil, err
	}
	s.n = n
	s.held.Store(true)
	return s, nil
}

// abandon removes a waiter from the queue, or returns the slot that it was
// granted in the meantime.
func (p *SlotPool) abandon(w *waiter, n devices.Size) {
	p.mu.Lock()
	select {
	case g := <-w.granted:
		p.mu.Unlock()
		if s, err := p.redeem(g, w.size, n); err == nil {
			s.Release()
		}
		return
	default:
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(other *waiter) bool { return other == w })
	p.serveLocked()
	p.mu.Unlock()
}

// giveBack keeps a slot for reuse, or frees it when the pool is closed.
func (p *SlotPool) giveBack(s *Slot) {
	size := devices.Size(len(s.mem))
	p.mu.Lock()
	p.used -= size
	closed := p.closed
	if closed {
		p.total -= size
	} else {
		p.idle[size] = append(p.idle[size], s)
		p.serveLocked()
	}
	p.mu.Unlock()
	if closed {
		// The kernel refuses to unmap only what isn't mapped.
		_ = s.destroy()
	}
}

// Pinned returns the bytes held and the bytes of all slots.
func (p *SlotPool) Pinned() (used, total devices.Size) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used, p.total
}

// Close frees the idle slots and makes waiting calls fail. Slots that are held
// stay valid until their Release.
func (p *SlotPool) Close() error {
	p.mu.Lock()
	p.closed = true
	for _, w := range p.waiting {
		w.granted <- grant{err: errPoolClosed()}
	}
	p.waiting = nil
	var victims []*Slot
	for size, kept := range p.idle {
		p.total -= size * devices.Size(len(kept))
		victims = append(victims, kept...)
	}
	clear(p.idle)
	p.mu.Unlock()
	return destroy(victims)
}

func errPoolClosed() error {
	return fmt.Errorf("pool of pinned slots: %w", devices.ErrClosed)
}
