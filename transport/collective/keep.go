package collective

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// keeper keeps copies of sources that calls overwrite (Options.KeepSource), so that the
// calls can be repeated. It belongs to one group; Group.mu guards it.
type keeper struct {
	// enabled reports that calls are repeated and sources kept.
	enabled bool
	rank    plan.Rank
	// kept is a copy of the source in host memory, and keptOn one in device memory; has
	// reports that one of them is valid.
	kept   []byte
	keptOn *devices.Memory
	has    bool
}

// repeatable reports whether a call that has begun can be repeated.
func (k *keeper) repeatable(r *running) bool { return !r.overwrites(k.rank) || k.has }

// keep copies the source that a call will overwrite on the first try, and restores it
// before later ones.
func (k *keeper) keep(ctx context.Context, r *running, tries int) error {
	if !k.enabled || !r.overwrites(k.rank) {
		return nil
	}
	if k.has && tries > 0 {
		if err := k.putBack(ctx, r); err != nil {
			return fmt.Errorf("restore the source: %w", err)
		}
		return nil
	}
	if err := k.take(ctx, r); err != nil {
		return fmt.Errorf("copy the source: %w", err)
	}
	k.has = true
	return nil
}

// take copies the source of a call: memory that the host can't access to the same device,
// if that has room, otherwise to host memory.
func (k *keeper) take(ctx context.Context, r *running) error {
	v := r.source.view
	if src, on := stagedOn(r); on {
		k.drop()
		d := src.Mem.Device()
		m, err := d.Alloc(ctx, src.Len)
		if err == nil {
			k.keptOn = m
			return d.Copy(ctx, m.All(), src)
		}
		if !errors.Is(err, devices.ErrOutOfMemory) {
			return err
		}
	}
	n := uint64(v.Size())
	if uint64(cap(k.kept)) < n {
		k.kept = make([]byte, n)
	}
	return v.Buffer().Load(ctx, transport.HostSpan(k.kept[:n]), v.Offset())
}

// putBack restores the source from the copy.
func (k *keeper) putBack(ctx context.Context, r *running) error {
	v := r.source.view
	if src, on := stagedOn(r); on && k.keptOn != nil {
		return src.Mem.Device().Copy(ctx, src, k.keptOn.All())
	}
	return v.Buffer().Store(ctx, v.Offset(), transport.HostSpan(k.kept[:v.Size()]))
}

// drop frees the copy in device memory.
func (k *keeper) drop() {
	if k.keptOn != nil {
		// The device itself reports memory that it can't free.
		_ = k.keptOn.Release()
		k.keptOn = nil
	}
}

// stagedOn returns the device memory of the source of a call, if it is staged.
func stagedOn(r *running) (devices.Span, bool) {
	if !r.source.staged {
		return devices.Span{}, false
	}
	s := r.source.held.Source().Device
	if s.Mem == nil {
		return devices.Span{}, false
	}
	s.Off, s.Len = s.Off+r.source.view.Offset(), r.source.view.Size()
	return s, true
}
