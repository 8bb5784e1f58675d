package collective

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// overwrites says whether a call may write into its source before it is over.
func (g *Group) overwrites(r *running) bool {
	if !r.task.InPlace || g.Size() == 1 {
		return false
	}
	switch r.task.Kind {
	case plan.AllReduce, plan.ReduceScatter, plan.AllToAll:
		return true
	case plan.Reduce:
		return r.task.Root == g.Rank()
	case plan.AllGather, plan.Broadcast, plan.Barrier:
		// Only what others give is written.
	}
	return false
}

// repeatable says whether a call that has begun can be done again.
func (g *Group) repeatable(r *running) bool {
	return r == nil || !g.overwrites(r) || g.guard.hasKept
}

// keep copies what a call will overwrite, the first time, and puts it back when
// it is done again.
func (g *Group) keep(ctx context.Context, r *running, tries int) error {
	if !g.opts.KeepSource || g.opts.Retry < 0 || !g.overwrites(r) {
		return nil
	}
	gd := &g.guard
	if gd.hasKept && tries > 0 {
		if err := gd.putBack(ctx, r); err != nil {
			return fmt.Errorf("put the source back: %w", err)
		}
		return nil
	}
	if err := gd.take(ctx, r); err != nil {
		return fmt.Errorf("keep the source: %w", err)
	}
	gd.hasKept = true
	return nil
}

// take copies the source of a call: memory that the host does not see to the same
// device, where that has room, and other memory to the host's.
func (gd *guard) take(ctx context.Context, r *running) error {
	v := r.source.view
	if src, on := stagedOn(r); on {
		gd.dropKept()
		d := src.Mem.Device()
		m, err := d.Alloc(ctx, src.Len)
		if err == nil {
			gd.keptOn = m
			return d.Copy(ctx, m.All(), src)
		}
		if !errors.Is(err, devices.ErrOutOfMemory) {
			return err
		}
	}
	n := uint64(v.Size())
	if uint64(cap(gd.kept)) < n {
		gd.kept = make([]byte, n)
	}
	return v.Buffer().Load(ctx, transport.HostSpan(gd.kept[:n]), v.Offset())
}

// putBack overwrites the source with what was kept.
func (gd *guard) putBack(ctx context.Context, r *running) error {
	v := r.source.view
	if src, on := stagedOn(r); on && gd.keptOn != nil {
		return src.Mem.Device().Copy(ctx, src, gd.keptOn.All())
	}
	return v.Buffer().Store(ctx, v.Offset(), transport.HostSpan(gd.kept[:v.Size()]))
}

// dropKept gives the memory of a device back.
func (gd *guard) dropKept() {
	if gd.keptOn != nil {
		// The device reports what it can't free by itself.
		_ = gd.keptOn.Release()
		gd.keptOn = nil
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
