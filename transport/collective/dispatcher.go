package collective

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// dispatcher executes a call by the path that its memory allows: the windows, direct, the
// areas, or the links. All ranks of a call take the same path. It belongs to one group;
// Group.mu guards it.
type dispatcher struct {
	window  windowPath
	direct  directPath
	pass    *passPath
	exec    *executor
	scratch *scratch
	planner *planner
	sync    *hostSync
}

// attempt executes a call once. It may be called again as long as the source is unchanged.
func (d *dispatcher) attempt(ctx context.Context, r *running) error {
	if !r.resumed {
		d.sync.entered = false
	}
	if r.prepared.window {
		return d.window.do(ctx, r)
	}
	if w := r.prepared.direct; w != nil {
		if mapped, err := d.direct.do(ctx, r, w); mapped || err != nil {
			return err
		}
		if r.unseen && r.passes() {
			if ok, err := d.pass.do(ctx, r); ok || err != nil {
				return err
			}
		}
		if err := d.fallBack(r); err != nil {
			return err
		}
	}
	return d.stream(ctx, r, r.prepared.stream)
}

// fallBack switches a call to the links because memory is not mapped.
func (d *dispatcher) fallBack(r *running) error {
	pr := r.prepared
	if pr.stream == nil {
		w, err := d.planner.choose(r.task, false)
		if err != nil {
			return err
		}
		d.planner.use(pr, w)
	}
	w := pr.stream
	r.plan, r.report.Algorithm, r.report.Because, r.report.Predicted = w.plan, w.plan.Algorithm, w.because, w.predicted
	return nil
}

// pathStream and pathStaged are the values of Report.Path for calls over links. They may
// differ between ranks.
const (
	pathStream = "stream"
	pathStaged = "staged"
)

// stream executes a call over the links.
func (d *dispatcher) stream(ctx context.Context, r *running, w *way) error {
	x, path := d.exec, pathStream
	if r.prepared.staged != (staging{}) {
		path = pathStaged
	}
	r.zeroCopy = w.zeroCopy
	if !r.resumed {
		aside, err := d.scratch.bytes(ctx, w.plan.Scratch*w.prog.element)
		if err != nil {
			return err
		}
		x.begin(work{
			task: &r.task, prog: w.prog,
			memory: [4][]byte{plan.Source: r.source.bytes, plan.Result: r.result.bytes, plan.Scratch: aside},
			views:  [4]domain.View{plan.Source: r.source.view, plan.Result: r.result.view},
		})
	}
	err := x.run(ctx)
	x.stager.settle()
	r.report.note(x.count, path)
	return err
}

// close frees the memory of all paths.
func (d *dispatcher) close(ctx context.Context) error {
	return errors.Join(d.window.close(ctx), d.pass.close(ctx), d.scratch.close(ctx), d.exec.close())
}
