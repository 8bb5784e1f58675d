package collective

import (
	"fmt"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// shape returns the shape that plans are made for; mapped says whether memory is used where it
// is.
func (g *Group) shape(mapped bool) plan.Shape {
	return plan.Shape{Order: g.opts.Order, Nodes: g.fabric.Nodes(), Mapped: mapped, Topology: g.opts.Topology}
}

// prepare finds out how a call is done.
//
// +checklocks:g.mu
func (g *Group) prepare(r *running, key callKey) (*prepared, error) {
	p := &prepared{staged: key.staged}
	if r.call.Plan != nil {
		return p, g.usePlan(r, p)
	}
	t := r.task
	if g.window != nil {
		w, err := g.choose(t, true)
		if err != nil {
			return nil, err
		}
		if w.plan.Algorithm == plan.Direct {
			p.direct, p.window = w, g.fitsWindow(&t)
			return p, g.translate(w, staging{})
		}
		p.stream = w
		return p, g.translate(w, p.staged)
	}
	var err error
	p.stream, err = g.streamWay(&t, p.staged)
	return p, err
}

// usePlan does a call by a plan that was made before.
//
// +checklocks:g.mu
func (g *Group) usePlan(r *running, p *prepared) error {
	have, t := r.call.Plan, r.task
	asked := have.Task
	asked.InPlace, t.InPlace = false, false
	if t.Kind == plan.Barrier {
		asked.Type = t.Type // there is nothing that it could be of
	}
	if asked != t {
		return fmt.Errorf("%w: the plan is for %+v, the call is %+v", ErrArgument, have.Task, r.task)
	}
	if err := g.fresh(have); err != nil {
		return err
	}
	t = r.task
	if have.Algorithm == plan.Direct {
		t.InPlace = false
	}
	made, err := plan.Compile(t, have.Shape, have.Algorithm)
	if err != nil {
		return err
	}
	w := &way{plan: made, because: "plan", predicted: g.predict(made)}
	if made.Algorithm == plan.Direct {
		p.direct = w
		return g.translate(w, staging{})
	}
	p.stream = w
	return g.translate(w, p.staged)
}

// predict returns the cost model's estimate of a plan.
//
// +checklocks:g.mu
func (g *Group) predict(p *plan.Plan) time.Duration {
	all, err := plan.Estimates(p.Task, p.Shape, g.costs)
	i := slices.IndexFunc(all, func(e plan.Estimate) bool { return e.Algorithm == p.Algorithm })
	if err != nil || i < 0 {
		return 0
	}
	return all[i].Time
}

// fresh refuses a plan that was made for other ranks. Errors: plan.ErrStale.
//
// +checklocks:g.mu
func (g *Group) fresh(p *plan.Plan) error {
	ours := g.shape(g.window != nil)
	switch {
	case p.Shape.Topology != ours.Topology:
		return fmt.Errorf("%w: its topology is %q, this one %q", plan.ErrStale, p.Shape.Topology, ours.Topology)
	case p.Algorithm == plan.Direct && !ours.Mapped:
		return fmt.Errorf("%w: it needs mapped memory", plan.ErrStale)
	case fmt.Sprint(p.Shape.Nodes, p.Shape.Order) != fmt.Sprint(ours.Nodes, ours.Order):
		return fmt.Errorf("%w: its ranks are on nodes %v in the order %v, these on %v in %v",
			plan.ErrStale, p.Shape.Nodes, p.Shape.Order, ours.Nodes, ours.Order)
	}
	return nil
}

// streamWay is the way over links.
//
// +checklocks:g.mu
func (g *Group) streamWay(t *plan.Task, st staging) (*way, error) {
	w, err := g.choose(*t, false)
	if err != nil {
		return nil, err
	}
	return w, g.translate(w, st)
}

// translate makes our program of a plan.
//
// +checklocks:g.mu
func (g *Group) translate(w *way, st staging) error {
	w.prog = newProgram(w.plan.Program(g.Rank()), g.Rank(), w.plan.Task.Type.Size(), st)
	w.lends = g.lends(w.plan)
	if w.lends && st == (staging{}) {
		for i, lend := range w.plan.Lendable(g.Rank()) {
			w.prog.steps[i].lend = lend
		}
	}
	return nil
}

// choose finds the algorithm: the one that was asked for, else the fastest. All
// ranks come to the same, as they have the same costs.
//
// +checklocks:g.mu
func (g *Group) choose(t plan.Task, mapped bool) (*way, error) {
	s := g.shape(mapped)
	a, own := g.opts.Algorithms[t.Kind]
	if !own {
		a = g.opts.Algorithm
	}
	// In place or not is each rank's own matter, and must not make a difference.
	same := t
	same.InPlace = t.Kind != plan.AllToAll && t.Kind != plan.Barrier
	all, err := plan.Estimates(same, s, g.costs)
	if err != nil {
		return nil, argument(err)
	}
	// The option is for the calls that it can do.
	if i := slices.IndexFunc(all, func(e plan.Estimate) bool { return e.Algorithm == a }); i >= 0 {
		return compile(t, s, all[i], "option")
	}
	return compile(t, s, g.best(all, &t, mapped), "model")
}

// best is the fastest of some estimates. What fits the group's window needs one
// meeting of the ranks there, and not two as in memory that stays the callers'. A
// barrier is no more than that, and its counters cost less than messages.
//
// +checklocks:g.mu
func (g *Group) best(all []plan.Estimate, t *plan.Task, mapped bool) plan.Estimate {
	best := all[0]
	for _, e := range all {
		if e.Algorithm != plan.Direct || !mapped || !g.fitsWindow(t) {
			continue
		}
		if t.Kind != plan.Barrier {
			e.Time -= e.Latency / 2
			e.Latency -= e.Latency / 2
		}
		if e.Time <= best.Time {
			best = e
		}
	}
	return best
}

// compile makes a plan. One in mapped memory is not in place: where ranks are in
// place does not matter to it, so they need not agree on that.
func compile(t plan.Task, s plan.Shape, e plan.Estimate, because string) (*way, error) {
	if e.Algorithm == plan.Direct {
		t.InPlace = false
	}
	p, err := plan.Compile(t, s, e.Algorithm)
	if err != nil {
		return nil, argument(err)
	}
	return &way{plan: p, because: because, predicted: e.Time}, nil
}

// argument makes what plan refuses a wrong argument.
func argument(err error) error { return fmt.Errorf("%w: %w", ErrArgument, err) }

// Compile makes the plan that a call would be done by, for Call.Plan.
func (g *Group) Compile(c *Call) (*plan.Plan, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, err := g.taskOf(c)
	if err != nil {
		return nil, err
	}
	w, err := g.choose(t, g.window != nil)
	if err != nil {
		return nil, err
	}
	return w.plan, nil
}
