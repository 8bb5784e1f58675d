package arena

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// growFor leases n bytes, or at least least, by taking memory from the
// device. Both are page multiples.
func (a *Arena) growFor(ctx context.Context, n, least devices.Size) (Lease, error) {
	if err := a.takeTurn(ctx); err != nil {
		return Lease{}, err
	}
	defer func() { <-a.turn }()
	// Whoever had the turn before may have made room.
	if l, ok, err := a.fromSlabs(n, false); ok || err != nil {
		return l, err
	}
	freeErr := a.sendOff()
	l, err := a.grow(ctx, n)
	if !errors.Is(err, devices.ErrOutOfMemory) {
		return l, err
	}
	// What is in hand is surer than what would come back for it.
	spare, ok, closedErr := a.fromSlabs(n, true)
	if ok || closedErr != nil {
		return spare, closedErr
	}
	emptied, emptyErr := a.emptyOut()
	if emptied {
		l, err = a.grow(ctx, n)
	}
	if errors.Is(err, devices.ErrOutOfMemory) {
		l, err = a.settle(ctx, n, least)
	}
	if err != nil {
		err = errors.Join(err, freeErr, emptyErr)
	}
	return l, err
}

// takeTurn waits for the right to call the device.
func (a *Arena) takeTurn(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("lease on %s: %w", a.info.Name, err)
	}
	select {
	case a.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("lease on %s: %w", a.info.Name, ctx.Err())
	}
}

// settle gives the longest piece there is, of at least least bytes, where n
// can't be had: free pages at hand, or a smaller slab where that gives more.
func (a *Arena) settle(ctx context.Context, n, least devices.Size) (Lease, error) {
	for refused := n; ; {
		l, next, err := a.lessThan(refused, n, least)
		if l.Span.Mem != nil || err != nil {
			return l, err
		}
		if refused == least {
			return Lease{}, a.outOfMemory(least)
		}
		l, err = a.grow(ctx, next)
		if !errors.Is(err, devices.ErrOutOfMemory) {
			return l, err
		}
		refused = next
	}
}

// lessThan decides what comes after the device has refused a slab: the next
// smaller size to ask for, down to least; or a lease of the longest free run
// at hand, where that is no shorter.
func (a *Arena) lessThan(refused, n, least devices.Size) (l Lease, next devices.Size, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.ready(); err != nil {
		return Lease{}, 0, err
	}
	next = roundDown(refused/2, a.opts.PageSize)
	if room := a.total - a.held; room < refused {
		next = room
	}
	next = max(next, least)
	longest := a.toBytes(a.longest())
	if longest >= next {
		l, _ = a.lease(a.toPages(min(n, longest)), true)
	}
	return l, next, nil
}

// grow takes a new slab and leases n bytes of it: a slab of the usual size,
// or one of just n bytes where the device has no more.
func (a *Arena) grow(ctx context.Context, n devices.Size) (Lease, error) {
	a.mu.Lock()
	room := min(a.total-a.held, a.largest)
	a.mu.Unlock()
	if room < n {
		return Lease{}, a.outOfMemory(n)
	}
	usual := min(max(n, a.opts.SlabSize), room)
	l, err := a.newSlab(ctx, usual, n)
	if usual > n && errors.Is(err, devices.ErrOutOfMemory) {
		l, err = a.newSlab(ctx, n, n)
	}
	if errors.Is(err, devices.ErrOutOfMemory) {
		return Lease{}, a.outOfMemory(n)
	}
	return l, err
}

// newSlab takes size bytes from the device, which must fit the total, and
// leases n of them before anyone else can.
func (a *Arena) newSlab(ctx context.Context, size, n devices.Size) (Lease, error) {
	a.mu.Lock()
	a.held += size
	a.mu.Unlock()
	mem, err := a.dev.Alloc(ctx, size)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.held -= size
		return Lease{}, fmt.Errorf("take a slab of %v: %w", size, err)
	}
	if err := a.ready(); err != nil {
		a.refuse(mem, size)
		return Lease{}, err
	}
	if mem.Epoch() != a.epoch {
		a.refuse(mem, size)
		return Lease{}, fmt.Errorf("take a slab of %s: %w", a.info.Name, devices.ErrLost)
	}
	l, ok := a.leaseFrom(a.add(mem, size), a.toPages(n))
	if !ok {
		return Lease{}, &devices.OutOfMemoryError{Device: a.info.Name, Asked: n, Free: a.total - a.leased}
	}
	return l, nil
}

// refuse leaves memory to be given back that never became a slab.
//
// +checklocks:a.mu
func (a *Arena) refuse(mem *devices.Memory, size devices.Size) {
	a.leaving = append(a.leaving, &slab{mem: mem, size: size})
}

// emptyOut gives every wholly free slab back to the device. done says whether
// there was one. It needs the turn.
func (a *Arena) emptyOut() (done bool, err error) {
	a.mu.Lock()
	before := a.held
	for _, s := range a.slabs {
		if s.whollyFree() {
			a.detach(s)
		}
	}
	a.mu.Unlock()
	err = a.sendOff()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held < before, err
}

// Trim gives those slabs back to the device that have been wholly free since
// the Trim before. Called at intervals, it returns what is kept for a next
// lease that does not come.
func (a *Arena) Trim() error {
	a.turn <- struct{}{}
	defer func() { <-a.turn }()
	a.mu.Lock()
	for _, s := range a.slabs {
		switch {
		case !s.whollyFree():
		case s.idle:
			a.detach(s)
		default:
			s.idle = true
		}
	}
	a.mu.Unlock()
	return a.sendOff()
}

// sendOff gives the memory of the leaving slabs back. It needs the turn.
func (a *Arena) sendOff() error {
	a.mu.Lock()
	leaving := a.leaving
	a.leaving = nil
	a.mu.Unlock()
	var errs []error
	var gone devices.Size
	for _, s := range leaving {
		errs = append(errs, s.mem.Release())
		gone += s.size
	}
	a.mu.Lock()
	a.held -= gone
	a.mu.Unlock()
	return errors.Join(errs...)
}

// Close gives all slabs back to the device; their leases are void. Closing
// twice is harmless.
func (a *Arena) Close() error {
	a.turn <- struct{}{}
	defer func() { <-a.turn }()
	a.mu.Lock()
	if !a.closed {
		a.closed = true
		a.dropAll()
	}
	a.mu.Unlock()
	return a.sendOff()
}
