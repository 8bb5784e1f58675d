package collective

import (
	"context"
	"errors"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// guard keeps the ranks of a group in the same call: it compares their arguments, times
// out waits, and repeats calls. Group.mu guards it, except watch.
type guard struct {
	watch watch
	// tally numbers the calls; ident holds the arguments of the current one.
	tally
	ident *ident
	// ahead is a rank that has ended the lapsed calls.
	ahead plan.Rank
	// base is added by a call to its values of Signals, so that they only grow.
	base uint64
	// lost says that links have to be made anew before the next call.
	lost bool
	// tries counts how often the call was begun at some rank, when they last came
	// together.
	tries int
	// resumable says that the call before was a Barrier that can go on where it
	// was left.
	resumable bool
	// suspended is set by Suspend.
	suspended bool
	// idents are those of the calls before, of which agreed were compared. Age is
	// how often they were forgotten.
	idents map[frame]*ident
	agreed int
	age    uint32
	// kept is a copy of what the call overwrites, or keptOn where that is on a
	// device; has says that it is one.
	kept    []byte
	keptOn  *devices.Memory
	hasKept bool

	// What follows is kept because it takes no memory then.
	talks   []talk
	want    []fabric.Want
	nothing [0]byte
	frames  [][]byte

	done    chan struct{}
	stopped sync.WaitGroup
}

// startGuard compares the groups' options and has the watchdog look after the
// group until endGuard.
//
// Errors: an InconsistentError; those of exchange.
func (g *Group) startGuard(ctx context.Context) error {
	gd := &g.guard
	gd.idents, gd.frames = map[frame]*ident{}, g.rows(frameSize)
	gd.ident = gd.intern(frame{})
	gd.done = make(chan struct{})
	gd.stopped.Go(func() { g.dog(gd.done) })
	name := "new group"
	gd.watch.begin(1, &name)
	defer gd.watch.end()
	return g.compareOptions(ctx)
}

// endGuard stops the watchdog and ends all waits. It may be called during a call, but
// only once.
func (g *Group) endGuard() {
	g.halt(ErrClosed)
	close(g.guard.done)
	g.guard.stopped.Wait()
}

// rows returns n bytes for each rank.
func (g *Group) rows(n int) [][]byte {
	all := make([][]byte, g.Size())
	for i := range all {
		all[i] = make([]byte, n)
	}
	return all
}

// duty describes a call, or an exchange that counts as one. All ranks run it together,
// and repeat it after an error.
type duty struct {
	// run is the call. Nil is the exchange: why, and what is said and heard.
	run  *running
	why  purpose
	mine []byte
	all  [][]byte
}

// waits reports whether an error means that ranks are missing in a Barrier, which
// completes once they call it.
func (d *duty) waits(err error) bool {
	return d.run != nil && d.run.task.Kind == plan.Barrier && errors.Is(err, ErrTimeout)
}

// guarded runs a numbered call: it compares the arguments, runs the program, and
// recovers from errors where possible.
//
// +checklocks:g.mu
func (g *Group) guarded(ctx context.Context, r *running) error {
	gd := &g.guard
	// A Barrier that was given up is the same one when it is called again: ranks
	// that come late are still in it.
	again := r.resumed && (gd.resumable || gd.lost)
	r.resumed = again && gd.resumable
	gd.resumable = false
	if !again {
		if err := g.number(); err != nil {
			return err
		}
		gd.ident = g.identOf(r)
	}
	return g.serve(ctx, &duty{run: r})
}

// convene is an exchange that is a call of its own.
//
// +checklocks:g.mu
func (g *Group) convene(ctx context.Context, why purpose, mine []byte, all [][]byte) error {
	g.guard.resumable = false
	if g.unfinished {
		// A Barrier after this call is a new one.
		g.unfinished = false
		g.closeCall(ctx)
	}
	if err := g.number(); err != nil {
		return err
	}
	g.guard.ident = g.guard.intern(controlFrame(why))
	return g.serve(ctx, &duty{why: why, mine: mine, all: all})
}

// admit returns an error if the group takes no call now. Such a call is not counted:
// ranks may make different numbers of them.
//
// Errors: ErrClosed; ErrSuspended, except for the call that ends the suspension.
func (g *Group) admit(resumes bool) error {
	switch {
	case g.closed.Load():
		return ErrClosed
	case g.guard.suspended && !resumes:
		return ErrSuspended
	}
	return nil
}

// number begins the next call.
//
// Errors: a RetryError for a call that has lapsed.
func (g *Group) number() error {
	gd := &g.guard
	gd.hasKept = false
	if gd.next() {
		return &RetryError{Call: gd.call, Rank: gd.ahead, Because: "had ended it when the ranks recovered"}
	}
	return nil
}

// stamp writes the header of the nth message to a peer.
func (g *Group) stamp(b *[headSize]byte, nth uint16, size uint64) {
	header{call: g.guard.call, kind: headData, step: nth, size: size, digest: g.guard.ident.digest}.put(b)
}

// verifyHead looks whether a peer has sent the header of its nth message to us.
//
// Errors: an OutOfStepError.
func (g *Group) verifyHead(b *[headSize]byte, peer plan.Rank, nth uint16, size uint64) error {
	return expect(b, peer, header{call: g.guard.call, kind: headData, step: nth, size: size, digest: g.guard.ident.digest})
}

// serve runs a duty, and repeats it after errors.
//
// +checklocks:g.mu
func (g *Group) serve(ctx context.Context, d *duty) error {
	gd := &g.guard
	if err := gd.watch.stop(); errors.Is(err, ErrClosed) {
		return err
	}
	if gd.watch.halted.Load() != nil {
		g.unhalt()
	}
	gd.watch.begin(gd.call, &gd.ident.name)
	defer gd.watch.end()
	for tries := 0; ; {
		at, err := g.once(ctx, d, tries)
		if err == nil {
			return nil
		}
		if at != fresh && !d.waits(err) {
			tries++
		}
		if !g.recoverable(ctx, d, at, err) {
			return err
		}
		over, err := g.recover(ctx, d, failedTry{at: at, tries: tries, cause: err})
		if over || err != nil {
			return err
		}
		tries = max(tries, gd.tries)
		if d.run != nil {
			d.run.report.Retries = tries
			d.run.resumed = false
		}
	}
}

// once tries a duty, and returns the stage that it has reached.
//
// +checklocks:g.mu
func (g *Group) once(ctx context.Context, d *duty, tries int) (stage, error) {
	gd := &g.guard
	if gd.lost {
		return fresh, errLost
	}
	if err := g.linked(); err != nil {
		return fresh, err
	}
	if d.run == nil {
		return comparing, g.exchange(ctx, d.why, d.mine, d.all)
	}
	if err := g.compare(ctx, d); err != nil {
		return comparing, err
	}
	if err := g.keep(ctx, d.run, tries); err != nil {
		return comparing, err
	}
	if err := g.attempt(ctx, d.run); err != nil {
		return begun, err
	}
	return g.conclude(ctx, d.run)
}

// conclude ends a call of which we have our result. Where ranks have lent memory it
// is good only if no rank has given up, and may have written to what it has lent,
// before all had received it. Who leaves the first settle knows that all have
// received theirs, and who leaves the second that all knew it.
func (g *Group) conclude(ctx context.Context, r *running) (stage, error) {
	if r.lends {
		for range 2 {
			if err := g.settle(ctx); err != nil {
				return begun, err
			}
		}
	}
	if g.settles(r) {
		return settling, g.settle(ctx)
	}
	return settling, nil
}

// linked says whether all links are there, where ranks write to each other's
// memory: those that have given up a call, and us, are not to be found by their
// counters.
//
// Errors: fabric.ErrLink.
func (g *Group) linked() error {
	if g.fabric.Signals() == nil {
		return nil
	}
	for r := range g.Size() {
		if plan.Rank(r) == g.Rank() {
			continue
		}
		if _, err := g.fabric.Link(plan.Rank(r)).TrySend(nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// settles says whether a call that went over links ends with settle.
func (g *Group) settles(r *running) bool {
	return g.opts.Retry > 0 && g.Size() > 1 && (r.report.Path == pathStream || r.report.Path == pathStaged) && r.task.Kind != plan.Barrier &&
		r.task.Count*r.task.Type.Size() >= uint64(g.opts.Settle)
}

// pathStream and pathStaged are Report.Path of what went over links: which one is
// each rank's own matter.
const (
	pathStream = "stream"
	pathStaged = "staged"
)
