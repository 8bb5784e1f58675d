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

// exclusively runs fn while nothing else can replace the object's content. The bytes
// stay the same.
func (o *object) exclusively(ctx context.Context, fn func() error) error {
	if err := o.lane.Enter(ctx); err != nil {
		return err
	}
	defer o.lane.Leave()
	return fn()
}

// replicate makes blobs, into which the holder has copied an entire object, another
// source of it. before is the object's version before the copy. For an object that is
// not made of blobs it does nothing, since that needs no other source. The caller has
// the object pinned.
//
// Errors: those of blobContent; ErrInvalid for another size; ErrInconsistent if the
// bytes were changed meanwhile; ErrLost; metadata.ErrNotExist if the object is being
// removed.
func (h *Holder) replicate(ctx context.Context, o *object, before uint64, blobs []Blob) error {
	if b, ok := o.content().(*content.Bound); !ok || sourceOf(b) == nil {
		return nil
	}
	r, _, err := h.store.bindings.blobContent(h, blobs)
	if err != nil {
		return fmt.Errorf("make a replica of object %d: %w", o.ino, err)
	}
	added := false
	err = o.exclusively(ctx, func() error {
		b, ok := o.content().(*content.Bound)
		switch {
		case !ok || b.State() == metadata.BoundLost:
			return ErrLost
		case r.Length() != b.Length():
			return fmt.Errorf("the replica has %d bytes, but the object has %d: %w", r.Length(), b.Length(), ErrInvalid)
		case before%2 != 0 || o.version.Load() != before:
			return fmt.Errorf("it was changed while it was copied: %w", ErrInconsistent)
		}
		added = true
		return b.AddReplica(r, func(other *content.Bound) bool { return sourceOf(other).belongsTo(h) })
	})
	if err != nil {
		return fmt.Errorf("make a replica of object %d: %w", o.ino, err)
	}
	if added {
		sourceOf(r).attend(o.ino, h.store.bindings.memoryEnded) //nolint:contextcheck // the end of the memory is independent of this call
	}
	return nil
}

// takeOver makes a replica the content of an object, on whatever device the replica is.
// The caller has the lane.
//
// Errors: ErrLost if no replica can take over.
func (bs *bindings) takeOver(ctx context.Context, o *object, b *content.Bound) error {
	heirs := slices.Clone(b.Replicas())
	here, _ := o.place()
	slices.SortStableFunc(heirs, func(x, y *content.Bound) int {
		return boolInt(sourceOf(x).tier != here) - boolInt(sourceOf(y).tier != here)
	})
	errs := ErrLost
	for _, next := range heirs {
		if !next.Alive() {
			continue
		}
		to := sourceOf(next).tier
		if err := bs.moveKeyed(ctx, o, to); err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		bs.recordOwner(ctx, o.ino, next, to != here)
		next.SetReplicas(slices.DeleteFunc(heirs, func(r *content.Bound) bool { return r == next }))
		o.mu.Lock()
		o.tier, o.body = to, next
		o.mu.Unlock()
		// Readers that have found the old content continue with it, and with its replicas.
		sourceOf(b).Cancel()
		bs.log.Info("a replica has replaced the memory of an object", zap.Uint64("ino", uint64(o.ino)), zap.String("device", string(to.Name)))
		return nil
	}
	return errs
}

// recordOwner records whose memory an object is now, where a later daemon needs that, or the object was moved to another
// device.
func (bs *bindings) recordOwner(ctx context.Context, ino Ino, b *content.Bound, moved bool) {
	m := sourceOf(b)
	h := m.holder.Load()
	if !h.store.lasting && !moved {
		return
	}
	_, err := bs.meta.Rebind(ctx, ino, h.bindingOf(ctx, m.blobs), func(now *metadata.Inode) error {
		now.Allocated = now.Size
		return nil
	})
	if err != nil && !errors.Is(err, metadata.ErrNotExist) { // without a name it needs none
		// The memory of before is not the object's any more: its owner may change it.
		err = errors.Join(err, bs.meta.Unbind(ctx, ino, true))
		bs.log.Warn("could not record the new memory of an object; it is lost at the next start", zap.Uint64("ino", uint64(ino)), zap.Error(err))
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// moveKeyed moves the name of an object that was made for a key to another device,
// without a copy. The object is lost in the records until recordOwner. The caller has the lane.
func (bs *bindings) moveKeyed(ctx context.Context, o *object, to *content.Tier) error {
	if here, _ := o.place(); here == to {
		return nil
	}
	err := bs.moveKeyedName(ctx, o.ino, to)
	if errors.Is(err, metadata.ErrNotExist) {
		if _, gone := bs.meta.Get(ctx, o.ino); errors.Is(gone, metadata.ErrNotExist) {
			return nil // it no longer has a name
		}
	}
	return err
}

func (bs *bindings) moveKeyedName(ctx context.Context, ino Ino, to *content.Tier) error {
	in, err := bs.meta.Get(ctx, ino)
	if err != nil {
		return err
	}
	made, err := bs.access.isKeysDir(ctx, in.Parent)
	if err != nil {
		return err
	}
	if !made || in.Nlink > 1 {
		return fmt.Errorf("it has a name that a user gave it: %w", metadata.ErrCrossDevice)
	}
	dir, err := bs.access.keysDir(ctx, to)
	if err != nil {
		return err
	}
	// The move ends the binding. If the daemon dies here, the object is lost rather than
	// empty.
	if err = bs.meta.Unbind(ctx, ino, true); err != nil {
		return err
	}
	r := metadata.Rename{From: in.Parent, Name: in.Name, To: dir, NewName: in.Name, Flags: metadata.NoReplace}
	return bs.names.replace(ctx, renaming{Rename: r}, func(exact metadata.Rename) (metadata.RenameResult, error) {
		return bs.names.moveName(ctx, exact, ino, home{tier: to}, nil)
	})
}
