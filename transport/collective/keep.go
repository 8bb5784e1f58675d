package collective

import (
	"context"
	"fmt"

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
	gd := &g.guard
	if !g.opts.KeepSource || g.opts.Retry < 0 || !g.overwrites(r) {
		return nil
	}
	v := r.call.Source
	n := uint64(v.Size())
	if gd.hasKept && tries > 0 {
		if err := v.Buffer().Store(ctx, v.Offset(), transport.HostSpan(gd.kept[:n])); err != nil {
			return fmt.Errorf("put the source back: %w", err)
		}
		return nil
	}
	if uint64(cap(gd.kept)) < n {
		gd.kept = make([]byte, n)
	}
	if err := v.Buffer().Load(ctx, transport.HostSpan(gd.kept[:n]), v.Offset()); err != nil {
		return fmt.Errorf("keep the source: %w", err)
	}
	gd.hasKept = true
	return nil
}
