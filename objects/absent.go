package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// absences are the keys and publications that are memory of holders of an earlier run. Their owners
// may come back: who reads them waits until then, or until the time is over.
type absences struct {
	// limit is the time; 0 if none are awaited.
	limit time.Duration
	// begin begins the time, once, and begun is closed then.
	begin func()
	begun chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	byHolder map[sessionID][]absence
	// found and back count them, and those that their owners have shown again.
	// +checklocks:mu
	found, back int
}

// absence is one key or publication.
type absence struct {
	ino    Ino
	body   *content.Bound
	record sessionBinding
	// offer is that of a publication; nil for a key.
	offer *offer
}

func newAbsences(limit time.Duration) *absences {
	a := &absences{limit: limit, byHolder: map[sessionID][]absence{}, begun: make(chan struct{})}
	a.begin = sync.OnceFunc(func() { close(a.begun) })
	return a
}

// AwaitOwners begins the time for which the owners of keys and publications are awaited, and receipts of the run before
// are kept: sessions can come back now. Calling it again does nothing.
func (s *Store) AwaitOwners() {
	s.receipts.begin()
	s.bindings.absences.begin()
}

// waits reports whether owners are awaited.
func (a *absences) waits() bool { return a.limit > 0 }

// take removes and returns the absences of a holder.
func (a *absences) take(id sessionID) []absence {
	a.mu.Lock()
	defer a.mu.Unlock()
	found := a.byHolder[id]
	delete(a.byHolder, id)
	return found
}

// takeAll removes and returns all absences.
func (a *absences) takeAll() (left []absence) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, some := range a.byHolder {
		left = append(left, some...)
	}
	a.byHolder = nil
	return left
}

// expectOwner makes an object of a session's memory wait for its session, if that may come back.
//
// Errors: errAwaited; errOfSession if it may not.
func (bs *bindings) expectOwner(t *content.Tier, in metadata.Inode, data []byte) error {
	if !bs.absences.waits() {
		return errOfSession
	}
	record, err := parseSessionBinding(data)
	if err != nil {
		return err
	}
	m := &blobSource{tier: t}
	b := &m.body
	b.InitAbsent(bs.engine, devices.Name(t.Name), uint64(in.Size), bs.table.warner)
	b.Source = m
	one := absence{ino: in.Ino, body: b, record: record}
	o := bs.table.adoptBound(in.Ino, t, b, facts{size: in.Size, atime: in.Atime, mtime: in.Mtime, ctime: in.Ctime})
	if in.Parent == metadata.PublishIno {
		one.offer = newOffer(in.Name, in.Taken, devices.NewSignal())
		one.offer.receipt = receiptOf(record.holder, record.call, in.Name)
		o.offer.Store(one.offer)
	}
	a := bs.absences
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byHolder[record.holder] = append(a.byHolder[record.holder], one)
	a.found++
	return errAwaited
}

// Continue gives the keys and publications that a holder of an earlier run, of the same session, has left their
// memory: the blobs that they were made of, in the regions that have the same numbers now. Those whose
// regions were not registered again are lost.
func (h *Holder) Continue(ctx context.Context) {
	s := h.store
	ctx = context.WithoutCancel(ctx)
	regions := map[uint64]*Region{}
	h.mu.Lock()
	h.continued = true
	for r := range h.regions {
		regions[r.number] = r
	}
	h.mu.Unlock()
	back := 0
	var lost []absence
	for _, one := range s.bindings.absences.take(h.id) {
		err := h.restore(one, regions) //nolint:contextcheck // the end of the memory is independent of this call
		if err == nil {
			back++
			continue
		}
		s.log.Warn("memory of a session did not come back", zap.Uint64("ino", uint64(one.ino)), zap.Error(err))
		lost = append(lost, one)
	}
	loseAll(ctx, lost, s.endOf)
	a := s.bindings.absences
	a.mu.Lock()
	defer a.mu.Unlock()
	a.back += back
}

// restore gives one object its memory.
func (h *Holder) restore(one absence, regions map[uint64]*Region) error {
	s := h.store
	if one.record.uid != h.who.UID {
		return fmt.Errorf("it is of another user: %w", ErrLost)
	}
	var blobs []Blob
	for b := one.record.blobs; len(b) > 0; b = b[3:] {
		r := regions[b[0]]
		if r == nil {
			return fmt.Errorf("memory %d was not registered again: %w", b[0], ErrLost)
		}
		blobs = append(blobs, Blob{Region: r, Off: b[1], Len: b[2]})
	}
	made, t, err := s.bindings.blobContent(h, blobs)
	if err != nil {
		return err
	}
	m, from := sourceOf(one.body), sourceOf(made)
	if t != m.tier {
		return fmt.Errorf("its memory was on %s and is on %s now: %w", m.tier.Name, t.Name, ErrLost)
	}
	m.blobs, m.users = from.blobs, from.users
	for i := range m.users {
		m.users[i].of = m
	}
	m.holder.Store(h)
	if waited, err := one.body.Return(made); err != nil || !waited {
		return err // if it has not waited, it was removed meanwhile
	}
	m.attend(one.ino, s.endOf(one.offer))
	return nil
}

// endOf returns the function to be called when memory ends that a key or a publication is made of.
func (s *Store) endOf(of *offer) endOfMemory {
	if of != nil {
		return func(ctx context.Context, ino Ino, _ *content.Bound) { s.publications.withdraw(ctx, ino, of) }
	}
	return s.bindings.memoryEnded
}

// loseAll makes objects lost whose owner has not come back, and withdraws publications; endOf is that of the store. All
// end before it waits for the first: a copy between two of them has the lane of one, and waits for the other.
func loseAll(ctx context.Context, all []absence, endOf func(*offer) endOfMemory) {
	for _, one := range all {
		one.body.End()
	}
	for _, one := range all {
		endOf(one.offer)(ctx, one.ino, one.body)
	}
}

// end ends the wait for owners with the store. The records stay as they are, for the next start.
func (a *absences) end() {
	for _, one := range a.takeAll() {
		one.body.End()
	}
}

// startAbsences ends the wait for owners when its time is over.
func (s *Store) startAbsences(ctx context.Context) {
	a := s.bindings.absences
	if !a.waits() {
		return
	}
	s.work.Go(func() {
		select {
		case <-a.begun:
		case <-ctx.Done():
			return
		}
		late := time.NewTimer(a.limit)
		defer late.Stop()
		select {
		case <-late.C:
		case <-ctx.Done():
			return
		}
		left := a.takeAll()
		loseAll(ctx, left, s.endOf)
		a.mu.Lock()
		defer a.mu.Unlock()
		s.log.Info("keys and publications of sessions after the death of the daemon",
			zap.Int("found", a.found), zap.Int("returned", a.back), zap.Int("owner_did_not_come_back", len(left)))
	})
}

// keepPublished reports whether a file that an earlier run has left in publish/ stays, at first: one of a device, or memory of
// a session that may come back.
func (bs *bindings) keepPublished(ctx context.Context, in metadata.Inode) (bool, error) {
	if in.Bound != metadata.BoundLive {
		return in.Bound == metadata.Unbound, nil
	}
	if !bs.absences.waits() {
		return false, nil
	}
	data, err := bs.meta.Binding(ctx, in.Ino)
	if errors.Is(err, metadata.ErrNoXattr) {
		return false, nil
	}
	if err != nil || !isSessionBinding(data) {
		return false, err
	}
	_, err = parseSessionBinding(data)
	return err == nil, nil //nolint:nilerr // nobody can receive it
}
