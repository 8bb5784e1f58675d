package collective

import (
	"context"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// fitsWindow says whether all ranks can read all sources from the windows.
func (g *Group) fitsWindow(t *plan.Task) bool {
	n := t.Count * t.Type.Size()
	return n <= windowData && n*uint64(t.Ranks) <= windowReads
}

// doWindow does a call with one meeting: each rank puts its source into its
// window, and makes its result of those of all.
//
// +checklocks:g.mu
func (g *Group) doWindow(ctx context.Context, r *running) error {
	l := g.loop
	if !r.resumed {
		l.count = counters{}
		src := g.slot(g.Rank())[describing:]
		src = src[:r.source.view.Size()]
		if r.source.staged {
			if err := readView(ctx, r.source.view, 0, src); err != nil {
				return err
			}
		} else {
			copy(src, r.source.bytes)
		}
	}
	if err := g.meet(ctx, r); err != nil {
		return err
	}
	r.report.note(l.count, "window")
	n := r.task.ResultLen(g.Rank()) * r.task.Type.Size()
	if n == 0 {
		return g.seen(r)
	}
	dst := r.result.bytes
	if r.result.staged {
		dst = l.buffer[headSize : headSize+n]
	}
	if err := g.fromWindows(r, dst); err != nil {
		return err
	}
	if r.result.staged {
		return writeView(ctx, r.result.view, 0, dst)
	}
	return nil
}

// seen looks at what all ranks have described.
//
// +checklocks:g.mu
func (g *Group) seen(r *running) error {
	for of := range g.Size() {
		if _, err := g.described(r, plan.Rank(of)); err != nil {
			return err
		}
	}
	return nil
}

// fromWindows makes the result of the sources in all windows.
//
// +checklocks:g.mu
func (g *Group) fromWindows(r *running, dst []byte) error {
	t, size := &r.task, r.task.Type.Size()
	part := plan.Part(t.Count, int(g.Rank()), t.Ranks)
	for i := range g.Size() {
		of := plan.Rank(i)
		slot, err := g.described(r, of)
		if err != nil {
			return err
		}
		src := slot[describing:]
		switch t.Kind {
		case plan.AllReduce, plan.Reduce:
			err = gather(t, i, dst, src[:t.Count*size])
		case plan.ReduceScatter:
			err = gather(t, i, dst, src[part.Off*size:(part.Off+part.Len)*size])
		case plan.AllGather:
			k := plan.Part(t.Count, i, t.Ranks)
			copy(dst[k.Off*size:], src[:k.Len*size])
		case plan.AllToAll:
			copy(dst[uint64(i)*part.Len*size:], src[part.Off*size:(part.Off+part.Len)*size])
		case plan.Broadcast:
			if of == t.Root {
				copy(dst, src[:t.Count*size])
			}
		case plan.Barrier:
		}
		if err != nil {
			return err
		}
	}
	if t.Kind.Combines() && t.Op == elem.Avg {
		return elem.Divide(t.Type, dst, uint64(t.Ranks))
	}
	return nil
}

// gather combines what came before with the source of rank i.
func gather(t *plan.Task, i int, dst, src []byte) error {
	if i == 0 {
		copy(dst, src)
		return nil
	}
	return elem.Combine(t.Op, t.Type, dst, dst, src)
}
