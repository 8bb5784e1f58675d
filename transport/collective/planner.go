package collective

import (
	"fmt"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

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

// lendSize is from how many bytes for each rank on memory is lent to the links
// instead of being copied. Fewer are in a cache, from where a copy takes no longer
// than to look up their pages.
const lendSize = 2 << 20

// planner finds the plans of calls and keeps them. All ranks come to the same plans, as
// they have the same options, places and costs. It belongs to one group; Group.mu guards
// it.
type planner struct {
	places fabric.Places
	opts   *Options
	// costs are those by which calls choose: the same at all ranks.
	costs plan.Costs
	// windowed says that all ranks have mapped the group's window.
	windowed bool
	// calls are the calls that were made before, and what was found out for them.
	calls map[callKey]*prepared
}

// prepared returns how a call is done. It allocates nothing for one that it knows.
func (p *planner) prepared(key callKey) (*prepared, error) {
	if have := p.calls[key]; have != nil {
		return have, nil
	}
	fresh, err := p.prepare(key)
	if err != nil {
		return nil, err
	}
	p.calls[key] = fresh
	return fresh, nil
}

// shape returns the shape that plans are made for; mapped says whether memory is used where it
// is.
func (p *planner) shape(mapped bool) plan.Shape {
	return plan.Shape{Order: p.opts.Order, Nodes: p.places.Nodes(), Mapped: mapped, Topology: p.opts.Topology}
}

// prepare finds out how a call is done.
func (p *planner) prepare(key callKey) (*prepared, error) {
	pr, t := &prepared{staged: key.staged}, key.task
	if key.plan != nil {
		return pr, p.usePlan(pr, key.plan, t)
	}
	if !p.windowed {
		var err error
		pr.stream, err = p.streamWay(&t, pr.staged)
		return pr, err
	}
	w, err := p.choose(t, true)
	if err != nil {
		return nil, err
	}
	if w.plan.Algorithm == plan.Direct {
		pr.direct, pr.window = w, fitsWindow(&t)
		p.translate(w, staging{})
		return pr, nil
	}
	pr.stream = w
	p.translate(w, pr.staged)
	return pr, nil
}

// usePlan does a call by a plan that was made before.
func (p *planner) usePlan(pr *prepared, have *plan.Plan, t plan.Task) error {
	asked, same := have.Task, t
	asked.InPlace, same.InPlace = false, false
	if t.Kind == plan.Barrier {
		asked.Type = t.Type // there is nothing that it could be of
	}
	if asked != same {
		return fmt.Errorf("%w: the plan is for %+v, the call is %+v", ErrArgument, have.Task, t)
	}
	if err := p.current(have); err != nil {
		return err
	}
	if have.Algorithm == plan.Direct {
		t.InPlace = false
	}
	made, err := plan.Compile(t, have.Shape, have.Algorithm)
	if err != nil {
		return err
	}
	w := &way{plan: made, because: "plan", predicted: p.predict(made)}
	if made.Algorithm == plan.Direct {
		pr.direct = w
		p.translate(w, staging{})
		return nil
	}
	pr.stream = w
	p.translate(w, pr.staged)
	return nil
}

// predict returns the cost model's estimate of a plan.
func (p *planner) predict(of *plan.Plan) time.Duration {
	all, err := plan.Estimates(of.Task, of.Shape, p.costs)
	i := slices.IndexFunc(all, func(e plan.Estimate) bool { return e.Algorithm == of.Algorithm })
	if err != nil || i < 0 {
		return 0
	}
	return all[i].Time
}

// current refuses a plan that was made for other ranks. Errors: plan.ErrStale.
func (p *planner) current(of *plan.Plan) error {
	ours := p.shape(p.windowed)
	switch {
	case of.Shape.Topology != ours.Topology:
		return fmt.Errorf("%w: its topology is %q, this one %q", plan.ErrStale, of.Shape.Topology, ours.Topology)
	case of.Algorithm == plan.Direct && !ours.Mapped:
		return fmt.Errorf("%w: it needs mapped memory", plan.ErrStale)
	case fmt.Sprint(of.Shape.Nodes, of.Shape.Order) != fmt.Sprint(ours.Nodes, ours.Order):
		return fmt.Errorf("%w: its ranks are on nodes %v in the order %v, these on %v in %v",
			plan.ErrStale, of.Shape.Nodes, of.Shape.Order, ours.Nodes, ours.Order)
	}
	return nil
}

// streamWay is the way over links.
func (p *planner) streamWay(t *plan.Task, st staging) (*way, error) {
	w, err := p.choose(*t, false)
	if err != nil {
		return nil, err
	}
	p.translate(w, st)
	return w, nil
}

// translate makes our program of a plan.
func (p *planner) translate(w *way, st staging) {
	rank := p.places.Rank()
	w.prog = newProgram(w.plan.Program(rank), rank, w.plan.Task.Type.Size(), st)
	w.lends = p.lends(w.plan)
	if w.lends && st == (staging{}) {
		for i, lend := range w.plan.Lendable(rank) {
			w.prog.steps[i].lend = lend
		}
	}
}

// choose finds the algorithm: the one that was asked for, else the fastest. All
// ranks come to the same, as they have the same costs.
func (p *planner) choose(t plan.Task, mapped bool) (*way, error) {
	s := p.shape(mapped)
	a, own := p.opts.Algorithms[t.Kind]
	if !own {
		a = p.opts.Algorithm
	}
	// In place or not is each rank's own matter, and must not make a difference.
	same := t
	same.InPlace = t.Kind != plan.AllToAll && t.Kind != plan.Barrier
	all, err := plan.Estimates(same, s, p.costs)
	if err != nil {
		return nil, argument(err)
	}
	// The option is for the calls that it can do.
	if i := slices.IndexFunc(all, func(e plan.Estimate) bool { return e.Algorithm == a }); i >= 0 {
		return compile(t, s, all[i], "option")
	}
	return compile(t, s, p.best(all, &t, mapped), "model")
}

// best is the fastest of some estimates. What fits the group's window needs one
// meeting of the ranks there, and not two as in memory that stays the callers'. A
// barrier is no more than that, and its counters cost less than messages.
func (p *planner) best(all []plan.Estimate, t *plan.Task, mapped bool) plan.Estimate {
	best := all[0]
	for _, e := range all {
		if e.Algorithm != plan.Direct || !mapped || !fitsWindow(t) {
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

// lends says whether ranks may lend what they send by a plan: the same at all of
// them, since a call that lends ends when all ranks have what they were to get. A
// caller may change what was sent then, and who gives up has to say so.
func (p *planner) lends(of *plan.Plan) bool {
	t := &of.Task
	return !oneHost(p.places) && t.Count*t.Type.Size()/uint64(t.Ranks) >= lendSize &&
		slices.Contains([]plan.Algorithm{plan.Ring, plan.NHR, plan.Chain, plan.Pairwise}, of.Algorithm)
}
