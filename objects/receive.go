package objects

import (
	"context"
	"fmt"
)

// Receive copies a publication into blobs of the same number and sizes, removes it, and
// notifies its publisher. Until it returns, no other receiver gets it; if it fails, the
// publication is as before, and the blobs hold unspecified bytes. If the context or the
// holder ends before the removal, Receive fails.
//
// Errors: metadata.ErrNotExist, also if another receiver gets it first, or it is
// withdrawn; *ShapeError; ErrLost if the publisher has ended; ErrForbidden for a
// publication that the holder's user may not read; ErrInvalid for blobs that are not
// inside their regions; ErrClosed.
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
	c, err := h.claim(ctx, k.Key, claimant{}, waits)
	if err != nil {
		return err
	}
	noted, err := c.noted(ctx)
	if err == nil {
		err = c.obj.scatter(ctx, Scatter{Keyed: k, Exact: true}, noted)
	}
	if err != nil {
		return c.fail(ctx, err)
	}
	return c.Take(ctx)
}
