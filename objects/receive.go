package objects

import (
	"cmp"
	"context"
	"fmt"
)

// Receive copies a publication into blobs of the same number and sizes, removes
// it, and tells its publisher. Until it returns nobody else receives it; when
// it fails the publication is as it was, and the blobs hold unspecified bytes.
// When the context, or the holder, ends before the removal, it has failed.
//
// Errors: metadata.ErrNotExist, also when somebody else is about to receive it
// and does, or it is withdrawn; *ShapeError; ErrLost when the publisher has
// ended; ErrForbidden for what the holder's user may not read; ErrInvalid for
// blobs that are not inside their regions; ErrClosed.
func (h *Holder) Receive(ctx context.Context, k Keyed) error {
	if err := h.receive(ctx, k); err != nil {
		return fmt.Errorf("receive %q: %w", k.Key, err)
	}
	return nil
}

func (h *Holder) receive(ctx context.Context, k Keyed) error {
	if _, err := checkBlobRanges(k.Blobs); err != nil {
		return err
	}
	a, err := h.published(ctx, k.Key)
	if err != nil {
		return err
	}
	s := h.store
	o, err := s.pin(ctx, a.Ino, pinUse)
	if err != nil {
		return err
	}
	defer s.unpin(context.WithoutCancel(ctx), o, pinUse)
	of := o.offer.Load()
	if of == nil {
		return errReceived(k.Key)
	}
	me := &claimant{}
	if _, err = of.claim(ctx, me); err != nil {
		return err
	}
	noted, err := s.textXattr(ctx, a.Ino, xattrBlobs)
	if err == nil {
		err = o.scatter(ctx, Scatter{Keyed: k, Exact: true}, noted)
	}
	if err == nil {
		err = s.removeOffered(ctx, o, of, EventConsumed, func() error {
			return cmp.Or(ctx.Err(), h.begin(), of.holds(me))
		})
	}
	if err == nil {
		return nil
	}
	s.giveBack(ctx, o, of, me)
	// What ended it tells more than what the copy has met.
	if why := of.untaken(); why != nil {
		return why
	}
	return err
}
