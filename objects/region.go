package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/transport"
)

// Region is memory that a holder has registered: of another process, of this one, or
// the content of a file of the store. Its methods may be called from any goroutine.
type Region struct {
	holder *Holder
	tier   *content.Tier
	size   uint64
	// number is that of the region in its session, by which a later daemon finds what is made of it.
	number uint64
	// body is the memory; nil for the content of a file, which is ino.
	body *content.Bound
	ino  Ino
	// notified is closed when all content made of the region has been notified of its end.
	notified chan struct{}
	// left is closed when the memory is no longer read or written.
	left chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	ended bool
	// users is the first of the contents made of the region.
	// +checklocks:mu
	users *regionUser
}

// regionUser is a content made of a region, in the list of all of them. The region's mu guards next,
// prev and joined.
type regionUser struct {
	region     *Region
	of         *blobSource
	next, prev *regionUser
	joined     bool
}

func (h *Holder) newRegion(t *content.Tier, size uint64) *Region {
	return &Region{holder: h, tier: t, size: size, notified: make(chan struct{}), left: make(chan struct{})}
}

// SetNumber gives a region a number that no other one of the holder has, before anything is made of it.
func (r *Region) SetNumber(n uint64) {
	r.holder.mu.Lock()
	defer r.holder.mu.Unlock()
	r.number = n
}

// Register registers memory of another process. r is as for Bind. When the process that
// is named as the owner exits, the region ends.
//
// Errors: those of Bind that concern the memory; ErrClosed.
func (h *Holder) Register(ctx context.Context, device devices.Name, r BindRequest) (*Region, error) {
	s := h.store
	o, _, err := s.bindings.openMemory(ctx, h.who, r, func(op *opener) (err error) {
		op.tier, err = s.tiers.deviceNamed(device)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("register memory of %s: %w", device, err)
	}
	o.body.MapFiles(&s.bindings.maps)
	reg := h.newRegion(o.tier, o.body.Length())
	reg.body = o.body
	if err = h.add(reg); err != nil {
		return nil, errors.Join(err, o.release())
	}
	if o.owner == nil {
		return reg, nil
	}
	cancel, err := s.owners.Watch(o.owner, func() { reg.end(context.Background()) }) //nolint:contextcheck // the watch lasts until the owner ends
	if err != nil {
		reg.end(ctx)
		return nil, fmt.Errorf("register memory of %s: %w", device, err)
	}
	o.body.SetCancel(content.CancelFunc(cancel))
	return reg, nil
}

// Adopt registers memory of a device of this process, and retains it.
//
// Errors: ErrInvalid for memory that is not of the device; ErrClosed.
func (h *Holder) Adopt(ctx context.Context, device devices.Name, m *devices.Memory) (*Region, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := h.store
	t, err := s.tiers.deviceNamed(device)
	if err != nil {
		return nil, err
	}
	if of := m.Device().Info().Name; of != device {
		return nil, fmt.Errorf("memory of %s can't be registered as memory of %s: %w", of, device, ErrInvalid)
	}
	size := uint64(m.Size())
	reg := h.newRegion(t, size)
	m.Retain()
	reg.body = content.NewBound(s.engine, device, s.table.warn)
	reg.body.AddMemory(m, size)
	if err := h.add(reg); err != nil {
		return nil, errors.Join(err, m.Release())
	}
	return reg, nil
}

// Device returns the device that has the memory; for a file, the one at its
// registration.
func (r *Region) Device() devices.Name { return devices.Name(r.tier.Name) }

// Size returns the size of the region in bytes.
func (r *Region) Size() uint64 { return r.size }

// Close releases the memory; it is unusable for the holder's further calls at once.
// Keys and publications made of it are lost, unless a replica takes over. When Close
// returns without an error, the memory is no longer read or written, and the records
// are updated; otherwise this continues in the background, and calling Close again
// waits for it.
//
// Errors: the context's.
func (r *Region) Close(ctx context.Context) error {
	r.end(ctx)
	r.holder.remove(r)
	return r.settled(ctx)
}

// end releases the memory: new uses fail at once. The content made of it is notified in
// the background.
func (r *Region) end(ctx context.Context) {
	if r.body != nil {
		r.body.End()
	}
	r.mu.Lock()
	was := r.ended
	var users []*blobSource
	for u := r.users; u != nil; u = u.next {
		users = append(users, u.of)
	}
	r.ended, r.users = true, nil
	r.mu.Unlock()
	if was {
		return
	}
	if r.body == nil {
		close(r.left)
	} else {
		r.body.AfterReaders(func() { close(r.left) })
	}
	if len(users) == 0 {
		close(r.notified)
		return
	}
	ctx = context.WithoutCancel(ctx)
	r.holder.store.work.Go(func() {
		defer close(r.notified)
		for _, u := range users {
			u.tell(ctx)
		}
	})
}

// settled waits until everything that end has started is done.
func (r *Region) settled(ctx context.Context) error {
	for _, done := range []chan struct{}{r.notified, r.left} {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// join has the content told when the region ends, or now if it has ended.
func (u *regionUser) join() {
	r := u.region
	r.mu.Lock()
	ended := r.ended
	if !ended {
		if u.next = r.users; u.next != nil {
			u.next.prev = u
		}
		r.users, u.joined = u, true
	}
	r.mu.Unlock()
	if ended {
		r.holder.store.work.Go(func() { u.of.tell(context.Background()) })
	}
}

// part undoes join.
func (u *regionUser) part() {
	r := u.region
	r.mu.Lock()
	defer r.mu.Unlock()
	if !u.joined || r.ended {
		return
	}
	if u.next != nil {
		u.next.prev = u.prev
	}
	if u.prev != nil {
		u.prev.next = u.next
	} else {
		r.users = u.next
	}
	u.next, u.prev, u.joined = nil, nil, false
}

// has checks that a range is inside the region, and that the region has not ended.
//
// Errors: ErrLost; devices.ErrRange.
func (r *Region) has(off, n uint64) error {
	switch {
	case r.hasEnded():
		return fmt.Errorf("the memory was unregistered: %w", ErrLost)
	case off > r.size || n > r.size-off:
		return fmt.Errorf("%d bytes at offset %d exceed the registered memory of %d: %w", n, off, r.size, devices.ErrRange)
	}
	return nil
}

// hasEnded reports whether end was called. The memory of a process is asked itself, without a lock.
func (r *Region) hasEnded() bool {
	if r.body != nil {
		return r.body.HasEnded()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// find returns the pieces of a range, in order, with offsets relative to the region.
// Only a file's can contain holes.
//
// Errors: ErrLost if the region has ended, or its file was removed; devices.ErrRange
// also if the file has become shorter.
func (r *Region) find(ctx context.Context, off, n uint64) (content.Range, error) {
	if err := r.has(off, n); err != nil {
		return content.Range{}, err
	}
	if r.body == nil {
		return r.findFile(ctx, off, n)
	}
	return r.body.FindOwn(off, n)
}

// write copies src to off. After an error, any part of the range may hold other bytes.
// Concurrent writes of the same range leave a mixture, as in memory.
//
// Errors: those of find; of the copy.
func (r *Region) write(ctx context.Context, off uint64, src transport.Span) error {
	if err := r.has(off, uint64(src.Len())); err != nil {
		return err
	}
	if r.body == nil {
		return r.writeFile(ctx, off, src)
	}
	_, _, err := r.body.Write(ctx, off, src)
	return err
}

// Blob is a range of a region.
type Blob struct {
	Region   *Region
	Off, Len uint64
}
