package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// DropLocal removes what the holder itself has of keys: its replica, or what
// it has bound, where a replica of another holder takes its place. A key that
// it has nothing of is a success.
//
// Errors by key: ErrClosed; ErrBusy while the object's removal would break an
// export.
func (h *Holder) DropLocal(ctx context.Context, keys []string) []error {
	errs := make([]error, len(keys))
	for i, key := range keys {
		err := h.begin()
		if err == nil {
			err = h.dropLocal(ctx, key)
		}
		if err != nil {
			errs[i] = fmt.Errorf("drop what is had of %q: %w", key, err)
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
	if h.forgetFile(key, in.Ino) {
		return goneIsFine(s.keyed.takeKey(ctx, in))
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
	// The name may be another by now than it was found.
	if in, err = s.meta.Get(ctx, in.Ino); err == nil && in.Key == key {
		err = s.keyed.vacate(context.WithoutCancel(ctx), in)
	}
	if err = goneIsFine(err); err != nil {
		last.SetLeaving(false)
	}
	return err
}

// goneIsFine is for removals of what somebody else may have removed meanwhile.
func goneIsFine(err error) error {
	if errors.Is(err, metadata.ErrNotExist) {
		return nil
	}
	return err
}

// stepDown makes an object go on without the holder. Where nobody takes its place
// it returns the content that is to go, which gets no replicas any more.
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
