package collective

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/fault/fabric/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// trials sets the number of trials of each variant of TestCutLinks.
var trials = flag.Int("trials", 0, "trials of each variant of TestCutLinks (default: few; with HMCFS_CHECK 1000)")

// cutCalls is the number of calls of a rank in a trial.
const cutCalls = 8

// cutter runs trials: some ranks make cutCalls calls, each with other elements, and one
// link fails at a random byte.
type cutter struct {
	ranks   int
	options Options
	inPlace bool
	kinds   []plan.Kind
	// device puts the buffers into device memory that the host cannot address.
	device bool
	// open connects the ranks.
	open func(t testing.TB, n int) []fabric.Fabric
	// runs is the number of trials, unless a flag sets it. failed counts the calls that
	// returned an error.
	runs, failed int
}

// task draws the call of a trial.
func (c *cutter) task(random *rand.Rand) plan.Task {
	t := plan.Task{
		Kind: c.kinds[random.IntN(len(c.kinds))], Ranks: c.ranks, Count: 1 + random.Uint64N(4000), Type: elem.Int32, InPlace: c.inPlace,
		Root: plan.Rank(random.IntN(c.ranks)),
	}
	if t.Kind.Combines() {
		t.Op = elem.Sum
	}
	if !t.Kind.Rooted() {
		t.Root = 0
	}
	if t.Kind == plan.AllToAll {
		t.Count, t.InPlace = t.Count*uint64(c.ranks), false
	}
	return t
}

// trial runs the calls of a group that loses one link. A call that returns nil must have
// the result of that call.
func (c *cutter) trial(t *testing.T, seed uint64, faults *faulty.Faults, all []fabric.Fabric) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 5))
	faults.Heal()
	w := groupsOf(t, all, c.options)
	task := c.task(random)
	alloc := w.buffer
	if c.device {
		d := sim.New(0, sim.Params{Size: 64 * devices.MiB})
		t.Cleanup(func() { _ = d.Close() })
		alloc = w.on(d)
	}
	calls := make([]*Call, c.ranks)
	for r := range calls {
		source, result := w.views(&task, r, alloc)
		calls[r] = &Call{Kind: task.Kind, Source: source, Result: result, Op: task.Op, Root: task.Root}
	}
	from := random.IntN(c.ranks)
	to := (from + 1 + random.IntN(c.ranks-1)) % c.ranks
	faults.CutAfter(plan.Rank(from), plan.Rank(to), 1+random.Uint64N(cutCalls*(4*task.Count+headSize)))
	failed := make([]int, c.ranks)
	err := together(c.ranks, func(r int) (err error) {
		// The other ranks learn that this one makes no more calls.
		defer func() { err = errors.Join(err, w.groups[r].Close()) }()
		failed[r], err = c.calls(w, r, &task, calls[r])
		return err
	})
	if err != nil {
		t.Errorf("%+v, cut from %d to %d: %v", task, from, to, err)
	}
	for _, n := range failed {
		c.failed += n
	}
}

// calls makes the calls of a rank, and counts those that return an error.
func (c *cutter) calls(w *ranks, r int, task *plan.Task, call *Call) (failed int, wrong error) {
	ctx, source, result := w.t.Context(), call.Source, call.Result
	got := make([]byte, task.ResultLen(plan.Rank(r))*task.Type.Size())
	for i := range cutCalls {
		sources := make([][]byte, c.ranks)
		for of := range sources {
			sources[of] = sample(task.Type, task.SourceLen(plan.Rank(of)), uint64(100*i+of+1))
		}
		if len(sources[r]) > 0 {
			if err := source.Buffer().Store(ctx, source.Offset(), transport.HostSpan(sources[r])); err != nil {
				return failed, err
			}
		}
		err := w.groups[r].Do(ctx, call)
		if len(got) > 0 {
			if lerr := result.Buffer().Load(ctx, transport.HostSpan(got), result.Offset()); lerr != nil {
				return failed, lerr
			}
		}
		want := reference(*task, plan.Rank(r), sources)
		switch {
		case errors.Is(err, ErrRetry), errors.Is(err, fabric.ErrLink), errors.Is(err, ErrInconsistent):
			failed++
		case err != nil:
			wrong = errors.Join(wrong, fmt.Errorf("call %d: %w", i, err))
		case len(want) > 0 && !bytes.Equal(got, want):
			wrong = errors.Join(wrong, fmt.Errorf("call %d has another result, and no error", i))
		}
	}
	return failed, wrong
}

// TestCutLinks runs trials in which a link fails at a random byte.
func TestCutLinks(t *testing.T) {
	ring := Options{Algorithm: plan.Ring}
	kept := Options{Algorithm: plan.Ring, KeepSource: true}
	reduce := []plan.Kind{plan.AllReduce}
	for name, c := range map[string]*cutter{
		"in place": {ranks: 3, inPlace: true, options: ring, kinds: reduce, open: localFabrics, runs: 150},
		"kept":     {ranks: 3, inPlace: true, options: kept, kinds: reduce, open: localFabrics, runs: 100},
		"other":    {ranks: 4, options: ring, kinds: reduce, open: localFabrics, runs: 50},
		"kinds":    {ranks: 3, inPlace: true, kinds: kinds(), open: spreadFabrics, runs: 150},
		"settled":  {ranks: 4, inPlace: true, options: Options{Check: CheckOff, Settle: 1, KeepSource: true}, kinds: kinds(), open: spreadFabrics, runs: 50},
		"mapped":   {ranks: 3, inPlace: true, kinds: kinds(), open: localFabrics, runs: 50},
		"staged":   {ranks: 3, inPlace: true, device: true, options: kept, kinds: kinds(), open: spreadFabrics, runs: 50},
		"passed":   {ranks: 3, inPlace: true, device: true, kinds: kinds(), open: localFabrics, runs: 30},
		"sockets":  {ranks: 3, inPlace: true, options: ring, kinds: kinds(), open: socketFabrics, runs: 20},
		"shared":   {ranks: 3, inPlace: true, options: ring, kinds: kinds(), open: sharedFabrics, runs: 20},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			c.options.Costs, c.options.Timeout = someCosts(), time.Minute
			c.runs = kit.Rounds(c.runs, c.runs/2, 1000)
			if *trials > 0 {
				c.runs = *trials
			}
			faults, all := faulty.Wrap(c.open(t, c.ranks))
			for i := range c.runs {
				t.Run(fmt.Sprint(i), func(t *testing.T) { c.trial(t, uint64(i), faults, all) })
			}
			t.Logf("%d trials of %d ranks with %d calls: %d calls failed", c.runs, c.ranks, cutCalls, c.failed)
		})
	}
}

// sums makes an AllReduce at one rank, with numbers that belong to the call, and checks
// its result.
func (w *ranks) sums(t *testing.T, r, call int) error {
	t.Helper()
	const count = 300
	x := plan.Task{Kind: plan.AllReduce, Ranks: len(w.groups), Count: count, Type: elem.Int32, Op: elem.Sum}
	sources := make([][]byte, len(w.groups))
	for of := range sources {
		sources[of] = sample(elem.Int32, count, uint64(100*call+of+1))
	}
	v := view(t, w.buffer(4*count), elem.Int32, 0, count)
	copy(hostBytes(v), sources[r])
	if err := w.groups[r].AllReduce(t.Context(), v, v, elem.Sum); err != nil {
		return err
	}
	if !bytes.Equal(hostBytes(v), reference(x, plan.Rank(r), sources)) {
		return fmt.Errorf("rank %d: call %d has another result, and no error", r, call)
	}
	return nil
}

// TestMissedCall has a call fail at one rank before it begins, while the other ranks are
// in it: they do not combine it with the next call of that rank.
func TestMissedCall(t *testing.T) {
	broken := errors.New("broken")
	for _, a := range []plan.Algorithm{plan.Ring, ""} {
		for name, c := range map[string]*Call{
			"after":    {Kind: plan.Barrier, After: failedEvent{broken}},
			"argument": {Kind: plan.Broadcast, Root: 7},
		} {
			t.Run(fmt.Sprintf("%s/%s", name, a), func(t *testing.T) {
				kit.Check(t)
				w := newRanks(t, 3, Options{Algorithm: a, Check: CheckOff, KeepSource: true, Timeout: time.Minute})
				errs := make([]error, 3)
				err := together(3, func(r int) error {
					if r != 1 {
						errs[r] = w.sums(t, r, 0)
					} else if err := w.groups[r].Do(t.Context(), c); !errors.Is(err, broken) && !errors.Is(err, ErrArgument) {
						t.Errorf("the call that can't be: %v", err)
					}
					return errors.Join(w.sums(t, r, 1), w.sums(t, r, 2))
				})
				if err != nil || !errors.Is(errs[0], ErrRetry) || !errors.Is(errs[2], ErrRetry) {
					t.Errorf("%v, after %v", err, errs)
				}
			})
		}
	}
}

// failedEvent implements an event that fails.
type failedEvent struct{ err error }

func (e failedEvent) Wait(context.Context) error { return e.err }

func (e failedEvent) Close() error { return nil }

// TestRefusedCalls has ranks make different numbers of calls while the group is
// suspended: these are not counted.
func TestRefusedCalls(t *testing.T) {
	kit.Check(t)
	w := newRanks(t, 3, Options{Timeout: time.Minute})
	err := together(3, func(r int) error {
		g := w.groups[r]
		err := errors.Join(g.Suspend(t.Context()), g.Suspend(t.Context()))
		for range r {
			if refused := w.sums(t, r, 9); !errors.Is(refused, ErrSuspended) {
				err = errors.Join(err, fmt.Errorf("a suspended group: %w", refused))
			}
		}
		return errors.Join(err, g.Resume(t.Context()), w.sums(t, r, 1), w.sums(t, r, 2))
	})
	if err != nil {
		t.Error(err)
	}
}

// TestBarrierMet lets a Barrier time out at one rank while the others enter it: the error
// alone decides whether that rank calls it again, and later calls match.
func TestBarrierMet(t *testing.T) {
	kit.Check(t)
	w, faults := newFaulty(t, 3, Options{Algorithm: plan.Dissemination, Timeout: 400 * time.Millisecond})
	for turn := range 3 {
		faults.Cut(0, 1)
		err := together(3, func(r int) error {
			barrier := func() error { return w.groups[r].Barrier(t.Context()) }
			if r > 0 {
				// About when rank 0 times out.
				kit.Eventually(t, 20*time.Second, func() bool { return w.groups[0].guard.watch.quiet.Load() != 0 })
			}
			err := barrier()
			for errors.Is(err, ErrTimeout) && !errors.Is(err, ErrRetry) {
				err = barrier()
			}
			if errors.Is(err, ErrRetry) {
				err = nil
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		faults.Cut(1, 2)
		_ = together(3, func(r int) error { return w.sums(t, r, 10*turn) })
		if err := together(3, func(r int) error { return w.sums(t, r, 10*turn+1) }); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBarrierLeft has a Barrier and another call time out at a rank, which then calls a
// new Barrier: the calls after that match those of the other rank.
func TestBarrierLeft(t *testing.T) {
	kit.Check(t)
	w := groupsOf(t, spreadFabrics(t, 2), Options{Costs: someCosts(), Timeout: time.Second})
	first := func(r int) error {
		_, err := w.groups[r].Verify(t.Context(), view(t, w.buffer(4), elem.Int32, 0, 1))
		return errors.Join(w.groups[r].Barrier(t.Context()), err)
	}
	left := func(r int) (barrier, verify error) {
		barrier = w.groups[r].Barrier(t.Context())
		_, verify = w.groups[r].Verify(t.Context(), view(t, w.buffer(4), elem.Int32, 0, 1))
		return barrier, verify
	}
	if err := together(2, first); err != nil {
		t.Fatal(err)
	}
	if barrier, verify := left(0); !errors.Is(barrier, ErrTimeout) || !errors.Is(verify, ErrTimeout) {
		t.Fatalf("without the other rank: %v, %v", barrier, verify)
	}
	if err := together(2, func(r int) error {
		if r == 1 {
			if barrier, verify := left(r); !errors.Is(barrier, ErrRetry) || !errors.Is(verify, ErrRetry) {
				t.Errorf("calls that the other rank has given up: %v, %v", barrier, verify)
			}
		}
		return errors.Join(w.groups[r].Barrier(t.Context()), w.sums(t, r, 1), w.sums(t, r, 2))
	}); err != nil {
		t.Error(err)
	}
}
