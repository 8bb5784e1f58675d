package arena

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// growFor leases n bytes, or at least least, by allocating memory from the device. Both are
// page multiples.
func (a *Arena) growFor(ctx context.Context, n, least devices.Size) (Lease, error) {
	if err := a.takeTurn(ctx); err != nil {
		return Lease{}, err
	}
	defer func() { <-a.turn }()
	// An earlier holder of the turn may have made room.
	if l, ok, err := a.fromSlabs(n, false); ok || err != nil {
		return l, err
	}
	freeErr := a.sendOff()
	l, err := a.grow(ctx, n)
	if !errors.Is(err, devices.ErrOutOfMemory) {
		return l, err
	}
	// Using a spare is safer than freeing it and asking the device again.
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

// settle leases the longest available piece of at least least bytes, when n bytes are not
// available: existing free pages, or a smaller new slab if that is longer.
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

// lessThan decides how to proceed after the device has refused a slab: it returns the next
// smaller size to request, down to least, or a lease of the longest existing free run if
// that is no shorter.
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

// grow allocates a new slab and leases n bytes of it: a slab of the usual size, or one of
// exactly n bytes if the device has no more.
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

// newSlab allocates size bytes from the device, in whole units, which must fit into the total,
// and leases n of them before any other caller can.
func (a *Arena) newSlab(ctx context.Context, size, n devices.Size) (Lease, error) {
	size = wholeUnits(size, a.unit)
	a.mu.Lock()
	a.held += size
	id := a.nextID
	a.mu.Unlock()
	s, err := a.allocSlab(ctx, id, size)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.held -= size
		return Lease{}, fmt.Errorf("allocate a slab of %v: %w", size, err)
	}
	if err := a.ready(); err != nil {
		a.leaving = append(a.leaving, s)
		return Lease{}, err
	}
	if s.mem.Epoch() != a.epoch {
		a.leaving = append(a.leaving, s)
		return Lease{}, fmt.Errorf("allocate a slab on %s: %w", a.info.Name, devices.ErrLost)
	}
	l, ok := a.leaseFrom(a.add(s), a.toPages(n))
	if !ok {
		return Lease{}, &devices.OutOfMemoryError{Device: a.info.Name, Asked: n, Free: a.total - a.leased}
	}
	return l, nil
}

// emptyOut returns every wholly free slab to the device. done reports whether there was
// one. The caller must hold the turn.
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

// Trim returns to the device the slabs that have been wholly free since the previous Trim.
// Called at intervals, it frees memory that was retained for a lease that did not come.
func (a *Arena) Trim() error {
	a.turn <- struct{}{}
	defer func() { <-a.turn }()
	a.mu.Lock()
	_ = a.ready() // drops lost slabs; a closed arena has none
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

// sendOff frees the memory of the leaving slabs. The caller must hold the turn.
func (a *Arena) sendOff() error {
	a.mu.Lock()
	leaving := a.leaving
	a.leaving = nil
	a.mu.Unlock()
	var errs []error
	var gone devices.Size
	for _, s := range leaving {
		errs = append(errs, a.release(s))
		gone += s.size
	}
	a.mu.Lock()
	a.held -= gone
	a.mu.Unlock()
	return errors.Join(errs...)
}

// Close returns all slabs to the device; their leases become invalid. A second Close is
// harmless.
func (a *Arena) Close() error { return a.close(false) }

// Leave is Close, except that the keeper keeps the slabs, for the process that follows.
func (a *Arena) Leave() error { return a.close(true) }

func (a *Arena) close(leave bool) error {
	a.turn <- struct{}{}
	defer func() { <-a.turn }()
	a.leaves = a.leaves || leave
	a.mu.Lock()
	open := !a.closed
	if open {
		a.closed = true
		a.dropAll()
	}
	a.mu.Unlock()
	err := a.sendOff()
	if open {
		err = errors.Join(err, a.files.Close())
	}
	return err
}
