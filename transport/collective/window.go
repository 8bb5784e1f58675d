package collective

import (
	"context"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// windowPath executes small calls of ranks on one host in the windows of all. It belongs to
// one group; Group.mu guards it.
type windowPath struct {
	*slots
	exec *executor
}

// do executes a call with a single rendezvous: each rank copies its source into its window,
// and computes its result from those of all ranks.
func (w *windowPath) do(ctx context.Context, r *running) error {
	if !r.resumed {
		src := w.mine()[describing:]
		src = src[:r.source.view.Size()]
		if r.source.staged {
			if err := readView(ctx, r.source.view, 0, src); err != nil {
				return err
			}
		} else {
			copy(src, r.source.bytes)
		}
	}
	if !w.sync.entered {
		w.stamp(r.task.Count)
	}
	if err := w.sync.sync(ctx, w.exec.phase); err != nil {
		return err
	}
	r.report.note(counters{}, "window")
	n := r.task.ResultLen(w.fabric.Rank()) * r.task.Type.Size()
	if n == 0 {
		return w.seen(r)
	}
	dst := r.result.bytes
	if r.result.staged {
		dst = w.exec.folder.buffer[:n]
	}
	if err := w.fromWindows(r, dst); err != nil {
		return err
	}
	if r.result.staged {
		return writeView(ctx, r.result.view, 0, dst)
	}
	return nil
}

// seen verifies the descriptors of all ranks.
func (w *windowPath) seen(r *running) error {
	for of := range r.task.Ranks {
		if _, err := w.described(plan.Rank(of), r.task.Count); err != nil {
			return err
		}
	}
	return nil
}

// fromWindows computes the result from the sources in all windows.
func (w *windowPath) fromWindows(r *running, dst []byte) error {
	t, size := &r.task, r.task.Type.Size()
	part := plan.Part(t.Count, int(w.fabric.Rank()), t.Ranks)
	for i := range r.task.Ranks {
		of := plan.Rank(i)
		slot, err := w.described(of, t.Count)
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

// gather combines the sum so far with the source of rank i.
func gather(t *plan.Task, i int, dst, src []byte) error {
	if i == 0 {
		copy(dst, src)
		return nil
	}
	return elem.Combine(t.Op, t.Type, dst, dst, src)
}
