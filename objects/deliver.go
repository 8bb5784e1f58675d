package objects

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/metadata"
)

// reading records what an open file of publish/ was given by now.
type reading struct {
	offer *offer
	me    claimant

	// mu is a leaf.
	mu sync.Mutex
	// +checklocks:mu
	got coverage
}

// begin returns what a handle needs of a file in publish/; nil for any other.
//
// Errors: those of offer.look.
func (o *object) begin() (*reading, error) {
	of := o.offer.Load()
	if of == nil {
		return nil, nil
	}
	r := &reading{offer: of}
	return r, of.look(&r.me)
}

// Published says that the file was opened in publish/: who has read every byte
// of it has received it.
func (f *File) Published() bool { return f.reading != nil }

// Deliver notes that n bytes at off are about to be given to the reader. With
// the last of those that it has not read yet the file is its own, and gone when it
// closes it; who comes second gets an error, and none of the bytes. It does
// nothing for a file that was not published when it was opened. Of an empty file
// the read that finds its end is the last one.
//
// At most 4096 stretches with gaps between them are kept: what a reader is
// given beside them does not count.
//
// Errors: metadata.ErrNotExist when somebody else has received the file, or it
// was withdrawn; ErrLost when its publisher has ended; the context's while
// somebody else is about to receive it.
func (f *File) Deliver(ctx context.Context, off uint64, n int) error {
	r := f.reading
	if r == nil {
		return nil
	}
	if err := f.deliver(ctx, span{from: off, end: off + uint64(max(n, 0))}); err != nil {
		return fmt.Errorf("read %q of publish: %w", r.offer.name, err)
	}
	return nil
}

func (f *File) deliver(ctx context.Context, s span) error {
	r := f.reading
	if err := r.offer.look(&r.me); err != nil {
		return err
	}
	size, err := f.obj.end()
	if err == nil && size == 0 {
		return f.store.publications.take(ctx, f.obj, r)
	}
	if err != nil || s.from == s.end {
		return err
	}
	r.mu.Lock()
	last := r.got.completes(s, size)
	if !last {
		r.got.add(s)
	}
	r.mu.Unlock()
	if !last {
		return nil
	}
	return f.store.publications.take(ctx, f.obj, r)
}

// take makes a reader the receiver, in the records first: a death of the daemon
// must not give the file to another one.
func (ps *publications) take(ctx context.Context, o *object, r *reading) error {
	mine, err := r.offer.claim(ctx, &r.me, waits)
	if err != nil || mine {
		return err
	}
	if err = ps.meta.Take(context.WithoutCancel(ctx), o.ino); err != nil && !ps.isTaken(ctx, o.ino) {
		ps.giveBack(ctx, o, r.offer, &r.me)
		return err
	}
	return r.offer.take(&r.me)
}

// isTaken says whether the records have it that a file is received. Who has
// claimed it asks after a failure, which may have come behind the commit.
func (ps *publications) isTaken(ctx context.Context, ino Ino) bool {
	in, err := ps.meta.Get(context.WithoutCancel(ctx), ino)
	return err == nil && in.Taken
}

// giveBack offers again what one has claimed who has failed, and tells it.
func (ps *publications) giveBack(ctx context.Context, o *object, of *offer, by *claimant) {
	in, err := ps.meta.Get(context.WithoutCancel(ctx), o.ino)
	if err == nil {
		err = o.overlay(&in)
	}
	unlock := ps.names.lock(metadata.PublishIno, metadata.PublishIno)
	defer unlock()
	if of.giveBack(by) && err == nil {
		ps.events.emit(EventPublished, of.name, in)
	}
}

// Settle is called when one of the handle's descriptors is closed: the name of
// what its reader has received goes now, and not some time later with the
// handle. It does nothing for any other file.
func (f *File) Settle(ctx context.Context) {
	if f.reading != nil {
		f.finish(ctx)
	}
}

// finish is the end of a handle: what its reader has received loses its name.
func (f *File) finish(ctx context.Context) {
	r := f.reading
	if r.offer.holds(&r.me) != nil {
		return
	}
	mine := func() error { return r.offer.holds(&r.me) }
	if err := f.store.publications.removeOffered(ctx, f.obj, r.offer, EventConsumed, mine); err != nil {
		f.store.table.warn("the name of a file that was received could not be removed", err)
	}
}
