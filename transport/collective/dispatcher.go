package collective

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// dispatcher takes a call the way that its memory allows: through the windows, in place,
// through areas, or over the links. All ranks of a call take the same. It belongs to one
// group; Group.mu guards it.
type dispatcher struct {
	window  windowPath
	direct  directPath
	pass    *passPath
	exec    *executor
	scratch *scratch
	planner *planner
	meet    *hostSync
}

// attempt does a call once. It may be called again, as long as the source is as
// it was.
func (d *dispatcher) attempt(ctx context.Context, r *running) error {
	if !r.resumed {
		d.meet.restart()
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

// fallBack has a call be done over the links because memory is not mapped.
func (d *dispatcher) fallBack(r *running) error {
	pr := r.prepared
	if pr.stream == nil {
		w, err := d.planner.streamWay(&r.task, pr.staged)
		if err != nil {
			return err
		}
		pr.stream = w
	}
	r.switchTo(pr.stream)
	return nil
}

// pathStream and pathStaged are Report.Path of what went over links: which one is
// each rank's own matter.
const (
	pathStream = "stream"
	pathStaged = "staged"
)

// stream does a call over the links.
func (d *dispatcher) stream(ctx context.Context, r *running, w *way) error {
	x, path := d.exec, pathStream
	if r.prepared.staged != (staging{}) {
		path = pathStaged
	}
	r.lends = w.lends
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
	x.end()
	r.report.note(x.count, path)
	return err
}

// close gives back the memory of all ways.
func (d *dispatcher) close(ctx context.Context) error {
	return errors.Join(d.window.close(ctx), d.pass.close(ctx), d.scratch.close(ctx), d.exec.close())
}
