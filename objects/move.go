package objects

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

type moves struct {
	meta  *metadata.Store
	log   *zap.Logger
	tiers tiers
	table *table
	names *names
}

// moveBetween renames between two devices: it copies the content, then moves the name
// and the records in one transaction, then frees the old content. After a crash in
// between, the object is complete under its old name.
func (mv *moves) moveBetween(ctx context.Context, r renaming) error {
	whole := context.WithoutCancel(ctx)
	in, err := mv.meta.Lookup(whole, r.From, r.Name)
	if err != nil {
		return err
	}
	dir, err := mv.meta.Get(whole, r.To)
	if err != nil {
		return err
	}
	if in.IsDir() || in.Nlink > 1 || in.Bound == metadata.BoundLive {
		return metadata.ErrCrossDevice
	}
	to, err := mv.tiers.named(dir.Device)
	if err != nil {
		return err
	}
	if !in.IsRegular() {
		return mv.names.replace(whole, r, func(exact metadata.Rename) (metadata.RenameResult, error) {
			return mv.names.moveName(whole, exact, in.Ino, home{tier: to}, nil)
		})
	}
	end, ok := mv.table.awaitMove(ctx, in.Ino)
	if !ok {
		return fmt.Errorf("the file is open and can't be moved to another device: %w", metadata.ErrCrossDevice)
	}
	defer end()
	o, err := mv.table.pin(ctx, in.Ino, pinUse)
	if err != nil {
		return err
	}
	defer mv.table.unpin(whole, o, pinUse)
	err = mv.moveObject(ctx, move{renaming: r, object: o, to: to})
	if errors.Is(err, metadata.ErrTooManyLinks) { // it has got a second name meanwhile
		err = metadata.ErrCrossDevice
	}
	return err
}

// lastClose bounds the wait of a move for the close of the last handle: the kernel
// reports it to the daemon after close(2) has returned, and a program that closes and
// then renames must not get an error that the file is open.
const lastClose = 250 * time.Millisecond

// awaitMove is beginMove, retried for as long as a close may take to be reported.
func (tb *table) awaitMove(ctx context.Context, ino Ino) (end func(), ok bool) {
	ok, _ = awaitClose(ctx, func() (ok bool, err error) { // the error is the context's
		end, ok = tb.beginMove(ino)
		return ok, nil
	})
	return end, ok
}

// awaitClose calls try until it returns true, for as long as a close may take to be
// reported.
//
// Errors: those of try; the context's.
func awaitClose(ctx context.Context, try func() (bool, error)) (bool, error) {
	for pause := time.Millisecond; ; pause *= 2 {
		if ok, err := try(); ok || err != nil || pause > lastClose/2 {
			return ok, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// moveName is metadata.MoveDevice for a name that must still refer to the inode copied.
// The caller has the names' locks.
func (n *names) moveName(ctx context.Context, r metadata.Rename, ino Ino, to home, maps []metadata.Mapping) (metadata.RenameResult, error) {
	now, err := n.meta.Lookup(ctx, r.From, r.Name)
	if err != nil {
		return metadata.RenameResult{}, err
	}
	if now.Ino != ino {
		return metadata.RenameResult{}, fmt.Errorf("%q was replaced in the meantime: %w", r.Name, metadata.ErrNotExist)
	}
	return n.meta.MoveDevice(ctx, r, to.tier.Name, to.epoch, maps)
}

// move describes the move of a file to another tier.
type move struct {
	renaming
	object *object
	to     *content.Tier
	// commit, if it is not nil, is passed the function that moves the name, and may refuse
	// to call it. If it is set, bound content is copied too.
	commit func(run func() (metadata.RenameResult, error)) (metadata.RenameResult, error)
}

// moveObject moves a file that is not open; the caller keeps it from being opened.
func (mv *moves) moveObject(ctx context.Context, m move) error {
	o := m.object
	var old, fresh content.Content
	err := o.change(ctx, func() (err error) {
		// It may have been bound or published since its record was read.
		if m.commit == nil && (isBound(o.content()) || o.notOffered() != nil) {
			return metadata.ErrCrossDevice
		}
		if length := o.exported(); length > 0 {
			return fmt.Errorf("can't move an object while %d of its bytes are exported: %w", length, ErrBusy)
		}
		if fresh, err = mv.table.newContent(m.to, o.ino); err != nil {
			return err
		}
		old, err = mv.transplant(ctx, m, home{tier: m.to, body: fresh, epoch: m.to.Epoch()})
		return err
	})
	switch {
	case err != nil && fresh != nil:
		return errors.Join(err, fresh.Discard())
	case err != nil:
		return err
	}
	if err = old.Discard(); err != nil {
		mv.log.Warn("could not free the former memory of a moved object", zap.Uint64("ino", uint64(o.ino)), zap.Error(err))
	}
	return nil
}

// home is a place of content, present or future.
type home struct {
	tier  *content.Tier
	body  content.Content
	epoch metadata.Epoch // of the content, for the record
}

// transplant copies the object's content to a new home and moves the name there. It
// returns the old content; on an error nothing has changed.
func (mv *moves) transplant(ctx context.Context, m move, to home) (content.Content, error) {
	o := m.object
	if err := o.duplicate(ctx, to.body); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	var in metadata.Inode
	if err := o.overlay(&in); err != nil {
		return nil, err
	}
	if h, ok := to.body.(*content.HostFile); ok {
		if err := h.SetTimes(&in.Atime, &in.Mtime); err != nil {
			return nil, err
		}
	} else if to.body.Usage() == 0 {
		to.epoch = 0
	}
	maps := to.body.Settle(in.Size)
	if x, ok := to.body.(*content.Extents); ok {
		// Before the record names the new device: from then on its memory is the object's.
		f := facts{size: in.Size, atime: in.Atime, mtime: in.Mtime, ctime: in.Ctime, epoch: to.epoch}
		if err := o.keepIn(x, f); err != nil {
			return nil, err
		}
	}
	commit := m.commit
	if commit == nil {
		commit = func(run func() (metadata.RenameResult, error)) (metadata.RenameResult, error) { return run() }
	}
	err := mv.names.replace(ctx, m.renaming, func(exact metadata.Rename) (metadata.RenameResult, error) {
		return commit(func() (metadata.RenameResult, error) { return mv.names.moveName(ctx, exact, o.ino, to, maps) })
	})
	if err != nil {
		return nil, err
	}
	return o.rehome(to, in), nil
}

// newContent makes empty content on a tier for an object that is on another. The caller
// has the object's lane. If the move does not complete, the next start removes a host
// file made here.
func (tb *table) newContent(to *content.Tier, ino Ino) (content.Content, error) {
	if to.Files == nil {
		return tb.emptyContent(to), nil
	}
	h, err := content.CreateHostFile(to, tb.engine, uint64(ino))
	if err != nil {
		return nil, err // not a nil *HostFile, which would be a Content
	}
	return h, nil
}

// rehome replaces the object's content and returns the old one. Times and size remain
// those of in: a rename changes neither.
func (o *object) rehome(to home, in metadata.Inode) content.Content {
	o.mu.Lock()
	defer o.mu.Unlock()
	old := o.body
	if isBound(old) {
		o.foreign.Store(false)
	}
	o.tier, o.body, o.epoch = to.tier, to.body, to.epoch
	o.size, o.atime, o.mtime = in.Size, in.Atime, in.Mtime
	o.keepLocked()
	o.dirty.Store(true)
	return old
}
