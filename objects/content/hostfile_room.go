package content

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
)

// overwrite zeroes the existing bytes of a range in place, so that its memory can't be
// allocated elsewhere meanwhile.
func (h *HostFile) overwrite(ctx context.Context, off, n uint64) error {
	st, err := h.Stat()
	if err != nil {
		return err
	}
	end := min(off+n, uint64(st.Size))
	if off >= end {
		return nil
	}
	seen, err := h.Find(off, end-off, true)
	if err != nil {
		return err
	}
	defer seen.Release()
	for i := range seen.Len() {
		at := seen.At(i)
		if at.Hole {
			continue
		}
		if err := h.engine.Fill(ctx, at.Span, 0); err != nil {
			return err
		}
	}
	return nil
}

// room reserves the memory that a range still needs: pages that exist are overwritten in
// place.
func (h *HostFile) room(off, n uint64) error {
	missing, err := h.missing(off, n)
	if err != nil || missing == 0 {
		return err
	}
	h.tier.MakeRoom(missing)
	return h.tier.Files.Reserve(missing)
}

// missing returns the number of bytes of a range that have no memory yet.
func (h *HostFile) missing(off, n uint64) (devices.Size, error) {
	st, err := h.Stat()
	if err != nil {
		return 0, err
	}
	inside := max(off, min(off+n, uint64(st.Size)))
	missing := off + n - inside
	if inside == off {
		return devices.Size(missing), nil
	}
	seen, err := h.Find(off, inside-off, true)
	if err != nil {
		return 0, err
	}
	defer seen.Release()
	for i := range seen.Len() {
		at := seen.At(i)
		if at.Hole {
			missing += at.N
		}
	}
	return devices.Size(missing), nil
}
