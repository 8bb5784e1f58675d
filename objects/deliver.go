package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/metadata"
)

// reading records which bytes an open file of publish/ has delivered so far.
type reading struct {
	offer *offer
	me    claimant

	// mu protects what was delivered, and progress while it is told.
	mu sync.Mutex
	// +checklocks:mu
	got coverage
	// +checklocks:mu
	progress Progress
}

// Progress keeps how far an open file of publish/ was read, for a process that continues after the death of this one. Its
// methods are called one at a time, and must not call the file.
type Progress interface {
	// Delivered is called with all ranges that were delivered so far, in order, before the last of them reach the reader.
	// It must not keep ranges.
	Delivered(ranges []Stretch)
	// Receives is called with true before the records say that the reader has received the file, and with
	// false if they do not say it after all.
	Receives(bool)
}

// Stretch is the range of bytes [From, End) of a file.
type Stretch struct{ From, End uint64 }

// begin returns the state that a handle needs for a file in publish/; nil for any other
// file.
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

// Published reports whether the file was opened in publish/: a reader that has read all
// of its bytes has received it.
func (f *File) Published() bool { return f.reading != nil }

// Deliver records that n bytes at off are about to be returned to the reader. With the
// last bytes that it had not read, the reader has received the file, whose name is
// removed when the reader closes it; any other reader then gets an error, and none of
// the bytes. Of an empty file, the read that finds its end is the last one. Deliver does
// nothing for a file that was not published when it was opened.
//
// At most 4096 ranges with gaps between them are recorded; further ones do not count.
//
// Errors: metadata.ErrNotExist if another receiver has the file, or it was withdrawn;
// ErrLost if its publisher has ended; the context's while another receiver has claimed
// it.
func (f *File) Deliver(ctx context.Context, off uint64, n int) error {
	r := f.reading
	if r == nil {
		return nil
	}
	if err := f.deliver(ctx, Stretch{From: off, End: off + uint64(max(n, 0))}); err != nil {
		return fmt.Errorf("read publication %q: %w", r.offer.name, err)
	}
	return nil
}

func (f *File) deliver(ctx context.Context, s Stretch) error {
	r := f.reading
	if err := r.offer.look(&r.me); err != nil {
		return err
	}
	size, err := f.obj.end()
	if err == nil && size == 0 {
		return f.store.publications.take(ctx, f.obj, r)
	}
	if err != nil || s.From == s.End {
		return err
	}
	r.mu.Lock()
	last := r.got.completes(s, size)
	if !last {
		r.got.add(s)
		if r.progress != nil {
			r.progress.Delivered(r.got.parts)
		}
	}
	r.mu.Unlock()
	if !last {
		return nil
	}
	return f.store.publications.take(ctx, f.obj, r)
}

// take makes a reader the receiver, in the records first: after a crash the file must
// not be offered to another one.
func (ps *publications) take(ctx context.Context, o *object, r *reading) error {
	mine, err := r.offer.claim(ctx, &r.me, waits)
	if err != nil || mine {
		return err
	}
	r.receives(true)
	if err = ps.meta.Take(context.WithoutCancel(ctx), o.ino); err != nil && !ps.isTaken(ctx, o.ino) {
		r.receives(false)
		ps.giveBack(ctx, o, r.offer, &r.me)
		return err
	}
	if err = r.offer.take(&r.me); err != nil {
		r.receives(false)
	}
	return err
}

func (r *reading) receives(yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress != nil {
		r.progress.Receives(yes)
	}
}

// isTaken reports whether the records say that a file was received. A claimant asks
// after an error, which may have occurred after the commit.
func (ps *publications) isTaken(ctx context.Context, ino Ino) bool {
	in, err := ps.meta.Get(context.WithoutCancel(ctx), ino)
	return err == nil && in.Taken
}

// giveBack returns a claim after a failure, and emits an event that the file is offered
// again.
func (ps *publications) giveBack(ctx context.Context, o *object, of *offer, by *claimant) {
	in, err := ps.meta.Get(context.WithoutCancel(ctx), o.ino)
	if err == nil {
		err = o.overlay(&in)
	}
	unlock := ps.names.lock(metadata.PublishIno, metadata.PublishIno)
	defer unlock()
	if of.giveBack(by) && err == nil {
		ps.events.emit(EventPublished, of.name, &in)
	}
}

// Settle is called when one of the handle's descriptors is closed: it removes the name
// of a file that the reader has received, rather than leave that to the end of the
// handle. It does nothing for any other file.
func (f *File) Settle(ctx context.Context) {
	if f.reading != nil {
		f.finish(ctx)
	}
}

// finish removes the name of the file if the handle's reader has received it.
func (f *File) finish(ctx context.Context) {
	r := f.reading
	mine := func() error { return r.offer.receivedBy(&r.me) }
	if mine() != nil {
		return
	}
	err := f.store.publications.removeOffered(ctx, f.obj, r.offer, EventConsumed, "", mine)
	if err != nil && !errors.Is(err, metadata.ErrNotExist) { // which the close of another descriptor has removed
		f.store.table.warn("could not remove the name of a received file", err)
	}
}
