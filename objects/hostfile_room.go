package objects

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
)

// overwrite zeroes what there is of a range in place, so that nobody else can
// take its memory meanwhile. Behind the end there is nothing to zero.
func (h *hostFile) overwrite(ctx context.Context, off, n uint64) error {
	st, err := h.stat()
	if err != nil {
		return err
	}
	end := min(off+n, uint64(st.Size))
	if off >= end {
		return nil
	}
	pieces, release, err := h.find(off, end-off, true)
	if err != nil {
		return err
	}
	defer release()
	for _, at := range pieces {
		if at.hole {
			continue
		}
		if err := h.engine.Fill(ctx, at.span, 0); err != nil {
			return err
		}
	}
	return nil
}

// room asks for the memory that a range still needs: what has some already
// is written over in place.
func (h *hostFile) room(off, n uint64) error {
	missing, err := h.missing(off, n)
	if err != nil || missing == 0 {
		return err
	}
	h.tier.makeRoom(missing)
	return h.tier.files.Reserve(missing)
}

// missing returns the number of bytes of a range that have no memory yet.
func (h *hostFile) missing(off, n uint64) (devices.Size, error) {
	st, err := h.stat()
	if err != nil {
		return 0, err
	}
	inside := max(off, min(off+n, uint64(st.Size)))
	missing := off + n - inside
	if inside == off {
		return devices.Size(missing), nil
	}
	pieces, release, err := h.find(off, inside-off, true)
	if err != nil {
		return 0, err
	}
	defer release()
	for _, at := range pieces {
		if at.hole {
			missing += at.n
		}
	}
	return devices.Size(missing), nil
}
