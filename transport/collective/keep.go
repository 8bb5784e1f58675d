package collective

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// keeper keeps what calls overwrite (Options.KeepSource), so that they can be repeated. It
// belongs to one group; Group.mu guards it.
type keeper struct {
	// enabled says that calls are repeated and sources kept.
	enabled bool
	rank    plan.Rank
	// kept is a copy of what the call overwrites, or keptOn where that is on a
	// device; has says that it is one.
	kept   []byte
	keptOn *devices.Memory
	has    bool
}

// repeatable says whether a call that has begun can be done again.
func (k *keeper) repeatable(r *running) bool { return !r.overwrites(k.rank) || k.has }

// keep copies what a call will overwrite, the first time, and puts it back when
// it is done again.
func (k *keeper) keep(ctx context.Context, r *running, tries int) error {
	if !k.enabled || !r.overwrites(k.rank) {
		return nil
	}
	if k.has && tries > 0 {
		if err := k.putBack(ctx, r); err != nil {
			return fmt.Errorf("put the source back: %w", err)
		}
		return nil
	}
	if err := k.take(ctx, r); err != nil {
		return fmt.Errorf("keep the source: %w", err)
	}
	k.has = true
	return nil
}

// forget has the next call keep anew.
func (k *keeper) forget() { k.has = false }

// take copies the source of a call: memory that the host does not see to the same
// device, where that has room, and other memory to the host's.
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

// putBack overwrites the source with what was kept.
func (k *keeper) putBack(ctx context.Context, r *running) error {
	v := r.source.view
	if src, on := stagedOn(r); on && k.keptOn != nil {
		return src.Mem.Device().Copy(ctx, src, k.keptOn.All())
	}
	return v.Buffer().Store(ctx, v.Offset(), transport.HostSpan(k.kept[:v.Size()]))
}

// drop gives the memory of a device back.
func (k *keeper) drop() {
	if k.keptOn != nil {
		// The device reports what it can't free by itself.
		_ = k.keptOn.Release()
		k.keptOn = nil
	}
}

// stagedOn returns the device that has the source of a call, if it is staged.
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
