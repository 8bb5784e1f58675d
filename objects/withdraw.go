package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// endOffer ends the offer of a file whose name in publish/ was removed, and returns how
// it has ended. Handles that have it open get an error from now on.
func (v *victim) endOffer(ino Ino) EventKind {
	kind := EventWithdrawn
	if v.kind == EventConsumed {
		kind = v.kind
	}
	o := v.obj
	if o == nil {
		// It may have been opened since the name was looked up.
		if o = v.names.table.peek(ino); o == nil {
			return kind
		}
	}
	of := o.offer.Load()
	if of == nil {
		return kind
	}
	if kind = of.end(kind, o.publisherEnded(of)); kind != EventConsumed {
		v.result = ErrWithdrawn
	}
	v.ended = of.publication
	return kind
}

// publisherEnded returns the error for a receiver if the memory has ended; nil
// otherwise.
func (o *object) publisherEnded(of *offer) error {
	if b, theirs := o.content().(*content.Bound); theirs && b.State() == metadata.BoundLost {
		return fmt.Errorf("the publisher of %q has ended: %w", of.name, ErrLost)
	}
	return nil
}

// removeOffered removes the name of a file in publish/, which the caller has pinned.
// may is called under the lock of the names, before anything has changed.
// receipt is noted beside that of the publisher, if the file was received; empty is none.
func (ps *publications) removeOffered(ctx context.Context, o *object, of *offer, kind EventKind, receipt string, may func() error) error {
	in := metadata.Inode{Ino: o.ino, Parent: metadata.PublishIno, Name: of.name}
	var receipts []string
	for _, text := range []string{of.receipt, receipt} {
		if kind == EventConsumed && text != "" {
			receipts = append(receipts, text)
		}
	}
	return ps.names.unlinkNoting(context.WithoutCancel(ctx), in, kind, receipts, func(metadata.Inode) error { return may() })
}

// withdraw removes a publication whose memory has ended, unless a reader has taken it
// already.
func (ps *publications) withdraw(ctx context.Context, ino Ino, of *offer) {
	o := ps.table.pinLoaded(ino)
	if o == nil {
		return
	}
	defer ps.table.unpin(ctx, o, pinUse)
	if o.offer.Load() != of {
		return
	}
	err := ps.removeOffered(ctx, o, of, EventWithdrawn, "", of.untaken)
	if err == nil || of.untaken() != nil {
		return
	}
	if of.end(EventWithdrawn, o.publisherEnded(of)) == EventWithdrawn {
		of.publication.Set(ErrWithdrawn)
	}
	ps.log.Warn("could not remove the name of a publication that has ended",
		zap.Uint64("ino", uint64(ino)), zap.Error(err))
}

// clearPublished removes the files that an earlier run has left in publish/ and that
// can't be received: memory of holders of that run. Those that were received, except for their name, are to be removed with
// their memory, once that is known; their readers may continue. It gives the directory the mode and owner of the devices'
// directories. It runs before the store is in use.
func (st *startup) clearPublished(ctx context.Context, o Options, bs *bindings) error {
	_, err := st.meta.Update(ctx, metadata.PublishIno, func(in *metadata.Inode) error {
		in.Mode, in.UID, in.GID = metadata.TypeDir|o.DirMode.Perm(), o.UID, o.GID
		return nil
	})
	if err != nil {
		return fmt.Errorf("set up the directory publish: %w", err)
	}
	var over []metadata.Removal
	after := metadata.Cookie(0)
	for {
		entries, err := st.meta.ReadDir(ctx, metadata.PublishIno, after, publishChunk)
		if err != nil {
			return fmt.Errorf("list publish: %w", err)
		}
		for _, e := range entries {
			after = e.Cookie
			in, err := st.meta.Get(ctx, e.Ino)
			if err != nil {
				return fmt.Errorf("read the record of publication %q: %w", e.Name, err)
			}
			keep, err := bs.keepPublished(ctx, in)
			switch {
			case err != nil:
				return fmt.Errorf("read the record of publication %q: %w", e.Name, err)
			case !keep:
				over = append(over, metadata.Removal{Name: e.Name})
			case in.Taken:
				st.received = append(st.received, e.Ino)
			}
		}
		if len(entries) < publishChunk {
			break
		}
	}
	return removePublished(ctx, st.meta, over)
}

// removePublished removes names of publish/.
func removePublished(ctx context.Context, meta *metadata.Store, over []metadata.Removal) error {
	for some := range slices.Chunk(over, metadata.UnlinkBatch) {
		meta.UnlinkAll(ctx, metadata.PublishIno, some, false)
		for i := range some {
			if r := &some[i]; r.Err != nil && !errors.Is(r.Err, metadata.ErrNotExist) {
				return fmt.Errorf("remove publication %q: %w", r.Name, r.Err)
			}
		}
	}
	return nil
}
