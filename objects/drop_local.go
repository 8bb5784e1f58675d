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
	for at := 0; at < len(keys); at += metadata.UnlinkBatch {
		end := min(at+metadata.UnlinkBatch, len(keys))
		h.dropLocal(ctx, keys[at:end], errs[at:end])
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("drop the local memory of key %q: %w", keys[i], err)
		}
	}
	return errs
}

// lastPart is an object of which a holder has the last memory, and that is to be removed.
type lastPart struct {
	carrier
	obj  *object // pinned
	body *content.Bound
}

// dropLocal removes the holder's parts of keys, and sets an error for each.
func (h *Holder) dropLocal(ctx context.Context, keys []string, errs []error) {
	s := h.store
	var last []lastPart
	var over []carrier
	var which []int
	for i, key := range keys {
		p, err := h.takePart(ctx, key)
		if errs[i] = err; p.body != nil {
			last, over, which = append(last, p), append(over, p.carrier), append(which, i)
		}
	}
	ctx = context.WithoutCancel(ctx)
	for n, err := range s.keyed.vacateAll(ctx, over) {
		p := &last[n]
		if err = goneIsFine(err); err != nil {
			p.body.SetLeaving(false)
		}
		errs[which[n]] = err
		s.table.unpin(ctx, p.obj, pinUse)
	}
}

// takePart removes the holder's part of a key, unless that is the last memory of the object, which it returns.
func (h *Holder) takePart(ctx context.Context, key string) (p lastPart, err error) {
	s := h.store
	if err = h.begin(); err != nil {
		return p, err
	}
	p.carrier, err = s.index.holder(ctx, key)
	if errors.Is(err, metadata.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	if h.forgetFile(key, p.Ino) || h.hasFile(p.Ino) {
		return p, goneIsFine(s.keyed.takeKey(ctx, p.carrier))
	}
	if p.tensor != "" {
		return p, nil // its bytes are the file's
	}
	if p.obj = s.table.pinLoaded(p.Ino); p.obj == nil {
		return p, nil
	}
	if p.body, err = h.stepDown(ctx, p.obj); err == nil && p.body != nil {
		// The name may have changed since it was found.
		p.Inode, err = s.meta.Get(ctx, p.Ino)
		if err == nil && p.Key == key {
			return p, nil
		}
		if !errors.Is(err, metadata.ErrNotExist) {
			p.body.SetLeaving(false) // it has another key by now, or that is not known
		}
		err = goneIsFine(err)
	}
	p.body = nil
	s.table.unpin(context.WithoutCancel(ctx), p.obj, pinUse)
	return p, err
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
