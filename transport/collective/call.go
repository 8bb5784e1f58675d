package collective

import (
	"context"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// running is a call that is under way.
type running struct {
	call Call
	task plan.Task
	// plan is by what the call is done.
	plan   *plan.Plan
	report Report
	// resumed says that this is a Barrier that was left before its end: it goes on
	// where it was.
	resumed bool
	// unseen says that the host does not see the memory of some rank.
	unseen bool
	// apart says that some ranks have areas to pass it through and some don't.
	apart bool

	prepared *prepared
	// lends says that ranks may have lent what they have sent: the call is not over
	// before all have received it.
	lends bool
	// plain says that source and result are host memory.
	plain          bool
	source, result memory
}

// callKey has what calls have in common that are done in the same way.
type callKey struct {
	task   plan.Task
	staged staging
	plan   *plan.Plan
}

// prepared has the plan and program of such calls.
type prepared struct {
	staged staging
	// ident is nil until the call is made.
	ident *ident
	// window says that the group's window is large enough for the call, and
	// nothing else faster.
	window bool
	// direct is the way by mapped memory, nil where there is none, and stream
	// the one by links, nil until it is needed.
	direct, stream *way
}

// way is a plan and our program of it.
type way struct {
	plan      *plan.Plan
	prog      *program
	because   string
	predicted time.Duration
	// lends says that some rank may lend what it sends.
	lends bool
}

// openCall finds out what is asked for, and how it is done.
//
// +checklocks:g.mu
func (g *Group) openCall(ctx context.Context, c *Call) error {
	r := &g.running
	if r.repeats(c) {
		return g.reopen(ctx, c)
	}
	*r = running{call: *c}
	t, err := g.taskOf(c)
	if err != nil {
		return err
	}
	r.task = t
	if err = g.openMemory(ctx, r); err != nil {
		g.closeCall(ctx)
		return err
	}
	key := callKey{task: r.task, staged: stagingOf(&r.task, r.source.staged, r.result.staged), plan: c.Plan}
	p := g.calls[key]
	if p == nil {
		if p, err = g.prepare(r, key); err != nil {
			g.closeCall(ctx)
			return err
		}
		g.calls[key] = p
	}
	r.prepared = p
	r.plain = c.Kind != plan.Broadcast && r.source.plain() && r.result.plain()
	r.report = r.fresh()
	return nil
}

// fresh is the report of a call that begins. It finds the plan, too.
func (r *running) fresh() Report {
	w := r.prepared.direct
	if w == nil {
		w = r.prepared.stream
	}
	r.plan = w.plan
	return Report{Task: r.task, Algorithm: w.plan.Algorithm, Because: w.because, Predicted: w.predicted}
}

// repeats says that a call is the one before once more, of memory that stays where
// it is: then there is nothing to find out.
func (r *running) repeats(c *Call) bool {
	b := &r.call
	return r.plain && r.prepared != nil && b.Kind == c.Kind && b.Op == c.Op && b.Root == c.Root && b.Plan == c.Plan &&
		b.Source == c.Source && b.Result == c.Result
}

// reopen is openCall of a call that repeats the one before.
//
// +checklocks:g.mu
func (g *Group) reopen(ctx context.Context, c *Call) error {
	r := &g.running
	r.call, r.resumed, r.lends = *c, false, false
	err := r.source.again(r.task.SourceLen(g.Rank()), c.Source)
	if err == nil {
		err = r.result.again(r.task.ResultLen(g.Rank()), c.Result)
	}
	if err != nil {
		g.closeCall(ctx)
		return err
	}
	r.report = r.fresh()
	return nil
}

// openMemory holds what the call needs of its views.
//
// +checklocks:g.mu
func (g *Group) openMemory(ctx context.Context, r *running) error {
	t, rank := &r.task, g.Rank()
	source, result := r.call.Source, r.call.Result
	if t.Kind == plan.Broadcast && source.Buffer() == nil {
		source = result
	}
	if t.SourceLen(rank) == 0 {
		source = domain.View{}
	}
	if t.ResultLen(rank) == 0 {
		result = domain.View{}
	}
	err := r.source.hold(source)
	if err == nil {
		err = r.result.hold(result)
	}
	if err == nil {
		t.InPlace, err = inPlace(t, rank, source, result)
	}
	if err != nil {
		return err
	}
	access := devices.ReadOnly
	if t.InPlace {
		access = devices.ReadWrite
	}
	if err = r.source.show(ctx, access); err != nil {
		return err
	}
	if err = r.result.show(ctx, devices.ReadWrite); err != nil {
		return err
	}
	if err = r.aligned(); err != nil || t.Kind != plan.Broadcast {
		return err
	}
	return g.rootCopies(ctx, r)
}

// rootCopies makes every Broadcast one in place: the ranks that are not the root
// have nothing else.
//
// +checklocks:g.mu
func (g *Group) rootCopies(ctx context.Context, r *running) error {
	t := &r.task
	if g.Rank() == t.Root && !t.InPlace && t.Count > 0 {
		if err := copyView(ctx, r.call.Result, &r.source); err != nil {
			return err
		}
		r.source.drop()
		if err := r.source.hold(r.call.Result); err != nil {
			return err
		}
		if err := r.source.show(ctx, devices.ReadWrite); err != nil {
			return err
		}
	}
	t.InPlace = true
	return nil
}

// aligned refuses elements that do not begin where such elements may.
func (r *running) aligned() error {
	if !r.task.Kind.Combines() {
		return nil
	}
	for _, m := range []*memory{&r.source, &r.result} {
		if len(m.bytes) > 0 && address(m.bytes)%r.task.Type.Size() != 0 {
			return fmt.Errorf("%w: a view of %v is not aligned to its elements", ErrArgument, r.task.Type)
		}
	}
	return nil
}

// closeCall lets the memory of a call go.
//
// +checklocks:g.mu
func (g *Group) closeCall(ctx context.Context) {
	g.running.source.drop()
	g.running.result.drop()
	g.guard.dropKept()
	g.own.trim(ctx, g.opts.Buffer)
}

// attempt does a call once. It may be called again, as long as the source is as
// it was.
//
// +checklocks:g.mu
func (g *Group) attempt(ctx context.Context, r *running) error {
	if !r.resumed {
		g.setting = false
	}
	if r.prepared.window {
		return g.doWindow(ctx, r)
	}
	if w := r.prepared.direct; w != nil {
		if mapped, err := g.doDirect(ctx, r, w); mapped || err != nil {
			return err
		}
		if r.unseen && r.passes() {
			if ok, err := g.doPass(ctx, r); ok || err != nil {
				return err
			}
		}
		if err := g.fallBack(r); err != nil {
			return err
		}
	}
	return g.doStream(ctx, r, r.prepared.stream)
}

// doStream does a call over the links.
//
// +checklocks:g.mu
func (g *Group) doStream(ctx context.Context, r *running, w *way) error {
	l := g.loop
	path := pathStream
	if r.prepared.staged != (staging{}) {
		path = pathStaged
	}
	r.lends = w.lends
	if !r.resumed {
		if err := g.lend(ctx, r, w); err != nil {
			return err
		}
		l.begin(&r.task, w.prog)
	}
	err := l.all(ctx)
	l.settle()
	r.report.note(l.count, path)
	return err
}

// lend gives the loop the memory of a call.
//
// +checklocks:g.mu
func (g *Group) lend(ctx context.Context, r *running, w *way) error {
	l, size := g.loop, w.prog.element
	l.memory = [4][]byte{plan.Source: r.source.bytes, plan.Result: r.result.bytes}
	l.pager.views = [4]domain.View{plan.Source: r.source.view, plan.Result: r.result.view}
	var err error
	l.memory[plan.Scratch], err = g.own.bytes(ctx, w.plan.Scratch*size)
	return err
}
