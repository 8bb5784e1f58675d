package collective

import (
	"fmt"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// callKey identifies calls that are executed in the same way.
type callKey struct {
	task   plan.Task
	staged staging
	plan   *plan.Plan
}

// prepared holds the plans and programs of such calls.
type prepared struct {
	staged staging
	// ident is nil until the call is made.
	ident *ident
	// window reports that the group's windows are large enough for the call, and no other
	// path is faster.
	window bool
	// direct is the way by mapped memory, or nil; stream is the one over links, nil until
	// it is needed.
	direct, stream *way
}

// way is a plan and our program of it.
type way struct {
	plan      *plan.Plan
	prog      *program
	because   string
	predicted time.Duration
	// zeroCopy reports that ranks may send without copying.
	zeroCopy bool
}

// zeroCopySize is the number of bytes per rank from which on links send without copying. Fewer
// bytes are in a cache, so that copying them takes no longer than looking up their pages.
const zeroCopySize = 2 << 20

// planner chooses and caches the plans of calls. All ranks choose the same plans, as they
// have the same options, places and costs. It belongs to one group; Group.mu guards it.
type planner struct {
	places fabric.Places
	opts   *Options
	// costs are the costs by which plans are chosen: the same at all ranks.
	costs plan.Costs
	// windowed reports that all ranks have mapped the group's windows.
	windowed bool
	// calls caches how earlier calls were executed.
	calls map[callKey]*prepared
}

// prepared returns how a call is executed. It does not allocate for a cached call.
func (p *planner) prepared(key callKey) (*prepared, error) {
	if have := p.calls[key]; have != nil {
		return have, nil
	}
	w, err := p.wayOf(&key)
	if err != nil {
		return nil, err
	}
	pr := &prepared{staged: key.staged}
	p.use(pr, w)
	pr.window = key.plan == nil && pr.direct != nil && fitsWindow(&key.task)
	p.calls[key] = pr
	return pr, nil
}

// shape returns the shape for which plans are made; mapped reports whether memory is used
// in place.
func (p *planner) shape(mapped bool) plan.Shape {
	return plan.Shape{Order: p.opts.Order, Nodes: p.places.Nodes(), Mapped: mapped, Topology: p.opts.Topology}
}

// use makes our program of a plan, by which a call is then executed.
func (p *planner) use(pr *prepared, w *way) {
	if w.plan.Algorithm == plan.Direct {
		pr.direct = w
		p.translate(w, staging{})
		return
	}
	pr.stream = w
	p.translate(w, pr.staged)
}

// wayOf returns the way of a call: by the plan that it uses, or by the chosen one.
func (p *planner) wayOf(key *callKey) (*way, error) {
	have, t := key.plan, key.task
	if have == nil {
		return p.choose(t, p.windowed)
	}
	asked, same := have.Task, t
	asked.InPlace, same.InPlace = false, false
	if t.Kind == plan.Barrier {
		asked.Type = t.Type // it has no elements, so any type will do
	}
	if asked != same {
		return nil, fmt.Errorf("%w: the plan is for %+v, but the call is %+v", ErrArgument, have.Task, t)
	}
	if err := p.current(have); err != nil {
		return nil, err
	}
	if have.Algorithm == plan.Direct {
		t.InPlace = false
	}
	made, err := plan.Compile(t, have.Shape, have.Algorithm)
	if err != nil {
		return nil, err
	}
	return &way{plan: made, because: "plan", predicted: p.predict(made)}, nil
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

// current rejects a plan that was made for other ranks. Errors: plan.ErrStale.
func (p *planner) current(of *plan.Plan) error {
	ours := p.shape(p.windowed)
	switch {
	case of.Shape.Topology != ours.Topology:
		return fmt.Errorf("%w: its topology is %q instead of %q", plan.ErrStale, of.Shape.Topology, ours.Topology)
	case of.Algorithm == plan.Direct && !ours.Mapped:
		return fmt.Errorf("%w: it requires mapped memory", plan.ErrStale)
	case fmt.Sprint(of.Shape.Nodes, of.Shape.Order) != fmt.Sprint(ours.Nodes, ours.Order):
		return fmt.Errorf("%w: its ranks are on nodes %v in the order %v, but those of the group are on %v in %v",
			plan.ErrStale, of.Shape.Nodes, of.Shape.Order, ours.Nodes, ours.Order)
	}
	return nil
}

// translate makes our program of a plan.
func (p *planner) translate(w *way, st staging) {
	rank := p.places.Rank()
	w.prog = newProgram(w.plan.Program(rank), rank, w.plan.Task.Type.Size(), st)
	w.zeroCopy = p.zeroCopy(w.plan)
	if w.zeroCopy && st == (staging{}) {
		for i, lend := range w.plan.ZeroCopy(rank) {
			w.prog.steps[i].zeroCopy = lend
		}
	}
}

// choose chooses the algorithm: the requested one, otherwise the fastest. All ranks choose
// the same, as they have the same costs.
func (p *planner) choose(t plan.Task, mapped bool) (*way, error) {
	s := p.shape(mapped)
	a, own := p.opts.Algorithms[t.Kind]
	if !own {
		a = p.opts.Algorithm
	}
	// Ranks may differ in whether they are in place, which must not affect the choice.
	same := t
	same.InPlace = t.Kind != plan.AllToAll && t.Kind != plan.Barrier
	all, err := plan.Estimates(same, s, p.costs)
	if err != nil {
		return nil, argument(err)
	}
	// The option applies only to calls that the algorithm can do.
	if i := slices.IndexFunc(all, func(e plan.Estimate) bool { return e.Algorithm == a }); i >= 0 {
		return compile(t, s, all[i], "option")
	}
	return compile(t, s, p.best(all, &t, mapped), "model")
}

// best returns the fastest estimate. A call that fits the windows needs one rendezvous of
// the ranks there, instead of two in memory that belongs to the callers. A barrier is just
// a rendezvous, and counters cost less than messages.
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

// compile makes a plan. A plan in mapped memory is not in place: being in place makes no
// difference to it, so the ranks need not agree on that.
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

// argument turns an error of plan into ErrArgument.
func argument(err error) error { return fmt.Errorf("%w: %w", ErrArgument, err) }

// zeroCopy reports whether ranks may send without copying in a plan: the same at all of them,
// since such a call ends only when all ranks have received everything. After that a caller
// may modify its memory, and a rank that gives up before must announce it.
func (p *planner) zeroCopy(of *plan.Plan) bool {
	t := &of.Task
	return !oneHost(p.places) && t.Count*t.Type.Size()/uint64(t.Ranks) >= zeroCopySize &&
		slices.Contains([]plan.Algorithm{plan.Ring, plan.NHR, plan.Chain, plan.Pairwise}, of.Algorithm)
}
