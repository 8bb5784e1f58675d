package objects

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// receiveFile renames a file out of publish/, which receives it. On the same device
// only the name moves. To another device, and if the memory is the publisher's, the
// bytes are copied first. On failure the file is offered again.
//
// Errors: metadata.ErrNotExist if another receiver has it; ErrBusy for a file that must
// be copied while it is open elsewhere; metadata.ErrPermission for an exchange;
// ErrLost.
func (ps *publications) receiveFile(ctx context.Context, r renaming) error {
	whole := context.WithoutCancel(ctx)
	if r.Flags&metadata.Exchange != 0 {
		return metadata.ErrPermission
	}
	in, err := ps.meta.Lookup(whole, metadata.PublishIno, r.Name)
	if err != nil {
		return err
	}
	dir, err := ps.meta.Get(whole, r.To)
	if err != nil {
		return err
	}
	to, err := ps.tiers.named(dir.Device)
	if err != nil {
		return fmt.Errorf("can't receive into a directory that belongs to no device: %w", metadata.ErrPermission)
	}
	o, err := ps.table.pin(ctx, in.Ino, pinUse)
	if err != nil {
		return err
	}
	defer ps.table.unpin(whole, o, pinUse)
	of := o.offer.Load()
	if of == nil {
		return fmt.Errorf("%q is no longer published: %w", r.Name, metadata.ErrNotExist)
	}
	me := &claimant{}
	if _, err = of.claim(ctx, me, asksOnce); err != nil {
		return err
	}
	rec := &receipt{publications: ps, rename: r, object: o, offer: of, me: me}
	if from, body := o.place(); from == to && !isBound(body) {
		err = rec.moveName(whole)
	} else {
		err = rec.moveBytes(ctx, to)
	}
	if err != nil {
		ps.giveBack(whole, o, of, me)
		return err
	}
	if of.publication != nil {
		of.publication.Set(nil)
	}
	return nil
}

// receipt describes the rename of a file out of publish/.
type receipt struct {
	publications *publications
	rename       renaming
	object       *object
	offer        *offer
	me           *claimant
}

func (r *receipt) moveName(ctx context.Context) error {
	if err := r.object.lane.Enter(ctx); err != nil {
		return err
	}
	defer r.object.lane.Leave()
	return r.publications.names.replace(ctx, r.rename, func(exact metadata.Rename) (metadata.RenameResult, error) {
		return r.commit(func() (metadata.RenameResult, error) {
			return r.publications.meta.Rename(ctx, exact)
		})
	})
}

// moveBytes copies the content to a tier and then moves the name.
func (r *receipt) moveBytes(ctx context.Context, to *content.Tier) error {
	end, ok := r.publications.table.awaitMove(ctx, r.object.ino)
	if !ok {
		return fmt.Errorf("another process has the file open: %w", ErrBusy)
	}
	defer end()
	return r.publications.moves.moveObject(ctx, move{renaming: r.rename, object: r.object, to: to, commit: r.commit})
}

// commit runs the function that moves the name, under the lock of the names, if the
// receiver still has the claim.
func (r *receipt) commit(run func() (metadata.RenameResult, error)) (metadata.RenameResult, error) {
	if err := r.offer.holds(r.me); err != nil {
		return metadata.RenameResult{}, err
	}
	result, err := run()
	if err != nil {
		return result, err
	}
	o, in := r.object, result.Moved
	r.offer.end(EventConsumed, nil)
	o.offer.Store(nil)
	if r.publications.table.isOpen(o.ino) {
		// The kernel has opened the file without passthrough.
		o.revived.Store(true)
	}
	if err := o.overlay(&in); err != nil {
		r.publications.table.warn("could not determine the size of a received file", err)
	}
	r.publications.events.emit(EventConsumed, r.offer.name, &in)
	return result, nil
}
