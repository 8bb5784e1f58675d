package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// DropLocal removes the holder's own part of keys: its replica, or the memory it has
// bound. A replica of another holder takes over; without one the object is removed. A
// file to which the holder has bound a key loses the key. A key of which the holder has
// nothing is a success.
//
// Errors by key: ErrClosed; ErrBusy while the removal of the object would break an
// export.
func (h *Holder) DropLocal(ctx context.Context, keys []string) []error {
	errs := make([]error, len(keys))
	for i, key := range keys {
		err := h.begin()
		if err == nil {
			err = h.dropLocal(ctx, key)
		}
		if err != nil {
			errs[i] = fmt.Errorf("drop the local memory of key %q: %w", key, err)
		}
	}
	return errs
}

func (h *Holder) dropLocal(ctx context.Context, key string) error {
	s := h.store
	in, err := s.index.holder(ctx, key)
	if errors.Is(err, metadata.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if h.forgetFile(key, in.Ino) || h.hasFile(in.Ino) {
		return goneIsFine(s.keyed.takeKey(ctx, in))
	}
	if in.tensor != "" {
		return nil // its bytes are the file's
	}
	o := s.table.pinLoaded(in.Ino)
	if o == nil {
		return nil
	}
	defer s.table.unpin(context.WithoutCancel(ctx), o, pinUse)
	last, err := h.stepDown(ctx, o)
	if last == nil || err != nil {
		return err
	}
	// The name may have changed since it was found.
	if in.Inode, err = s.meta.Get(ctx, in.Ino); err == nil && in.Key == key {
		err = s.keyed.vacate(context.WithoutCancel(ctx), in)
	}
	if err = goneIsFine(err); err != nil {
		last.SetLeaving(false)
	}
	return err
}

// goneIsFine ignores that an object to be removed was removed by another call.
func goneIsFine(err error) error {
	if errors.Is(err, metadata.ErrNotExist) {
		return nil
	}
	return err
}

// stepDown removes the holder's memory from an object. If no replica can take over, it
// returns the content that is to be removed, which accepts no more replicas.
func (h *Holder) stepDown(ctx context.Context, o *object) (last *content.Bound, err error) {
	err = o.exclusively(ctx, func() error {
		b, ok := o.content().(*content.Bound)
		if !ok {
			return nil
		}
		b.DropReplicas(func(r *content.Bound) bool { return sourceOf(r).belongsTo(h) })
		if !sourceOf(b).belongsTo(h) || h.store.bindings.takeOver(context.WithoutCancel(ctx), o, b) == nil {
			return nil
		}
		b.SetLeaving(true)
		last = b
		return nil
	})
	return last, err
}
