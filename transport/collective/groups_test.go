package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/fault/fabric/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// several makes groups over the same fabrics; each test closes them in its own way.
type several struct {
	t      *testing.T
	all    []fabric.Fabric
	faults *faulty.Faults
	engine *transport.Engine
}

// group makes one more group of all ranks.
func (s *several) group(o Options) *ranks {
	s.t.Helper()
	if o.Costs == nil {
		o.Costs = someCosts()
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	w := &ranks{t: s.t, groups: make([]*Group, len(s.all)), table: region.NewTable(s.engine)}
	err := together(len(s.all), func(r int) (err error) {
		w.groups[r], err = New(s.t.Context(), s.all[r], o)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		w.close()
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, b := range w.buffers {
			_ = b.Close(context.Background())
		}
	})
	return w
}

// close closes the groups of all ranks.
func (w *ranks) close() {
	w.t.Helper()
	if err := together(len(w.groups), func(r int) error { return w.groups[r].Close() }); err != nil {
		w.t.Errorf("close: %v", err)
	}
}

// rounds makes some calls at all ranks, and compares their results.
func (w *ranks) rounds(n int, seed uint64) error {
	for i := range n {
		for _, count := range []uint64{100, 20_000} {
			for _, k := range []plan.Kind{plan.AllReduce, plan.AllGather, plan.AllToAll} {
				x := plan.Task{Kind: k, Count: count * uint64(len(w.groups)), Type: elem.Int32}
				if k.Combines() {
					x.Op = elem.Sum
				}
				if err := w.try(trial{task: x}, w.buffer, seed+uint64(i)); err != nil {
					return fmt.Errorf("call %d, %v × %d: %w", i, k, count, err)
				}
			}
		}
	}
	return nil
}

// TestSeveralGroups makes groups over one fabric, in turn and concurrently, over each kind
// of fabric.
func TestSeveralGroups(t *testing.T) {
	for name, open := range map[string]func(testing.TB, int) []fabric.Fabric{
		"local":   localFabrics,
		"shared":  sharedFabrics,
		"sockets": socketFabrics,
	} {
		for what, do := range map[string]func(*several){
			"in turn":      (*several).inTurn,
			"side by side": (*several).sideBySide,
			"after errors": (*several).afterErrors,
			"closed":       (*several).closedInCall,
			"cut at last":  (*several).cutAtLast,
			"refused":      (*several).refused,
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				kit.Check(t)
				engine, err := transport.New(transport.Options{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = engine.Close() })
				s := &several{t: t, engine: engine}
				s.faults, s.all = faulty.Wrap(open(t, 3))
				do(s)
			})
		}
	}
}

// inTurn closes each group before the next one, which has other options.
func (s *several) inTurn() {
	for i, o := range []Options{{Check: CheckOff}, {Algorithm: plan.Ring}, {Strict: true, Check: CheckAll}, {Settle: 1}, {}} {
		w := s.group(o)
		for j := range 20 {
			allReduceOf(s.t, w, 100, uint64(j))
		}
		if err := w.rounds(2, uint64(i)); err != nil {
			s.t.Errorf("group %d: %v", i, err)
		}
		w.close()
	}
}

// allReduceOf runs an AllReduce of floats.
func allReduceOf(t *testing.T, w *ranks, count, seed uint64) {
	t.Helper()
	x := plan.Task{Kind: plan.AllReduce, Count: count, Type: elem.Float32, Op: elem.Sum}
	if err := w.try(trial{task: x}, w.buffer, seed); err != nil {
		t.Fatal(err)
	}
}

// sideBySide makes concurrent calls of groups with different options.
func (s *several) sideBySide() {
	groups := []*ranks{s.group(Options{}), s.group(Options{Algorithm: plan.Ring}), s.group(Options{Check: CheckOff, Settle: 1})}
	errs := make([]error, len(groups))
	var all sync.WaitGroup
	for i, w := range groups {
		all.Go(func() { errs[i] = w.rounds(10, uint64(i)) })
	}
	// Another group is opened and closed at the same time.
	more := s.group(Options{})
	err := more.rounds(2, 9)
	more.close()
	all.Wait()
	if err = errors.Join(append(errs, err)...); err != nil {
		s.t.Error(err)
	}
}

// afterErrors makes a group alongside and after one that has lost links, has timed out and
// had different arguments.
func (s *several) afterErrors() {
	beside := s.group(Options{})
	w := s.group(Options{Algorithm: plan.Ring, Timeout: 200 * time.Millisecond, Retry: -1})
	s.faults.CutAfter(0, 1, 100)
	v := make([]*Call, len(w.groups))
	for r := range v {
		view := w.floats(r, 100_000)
		v[r] = &Call{Kind: plan.AllReduce, Source: view, Result: view, Op: elem.Sum}
	}
	if err := together(len(v), func(r int) error { return w.groups[r].Do(s.t.Context(), v[r]) }); err == nil {
		s.t.Error("nothing has failed")
	}
	if errs := without(1, len(v), func(r int) error { return w.groups[r].Do(s.t.Context(), v[r]) }); !errors.Is(errs[0], ErrTimeout) {
		s.t.Errorf("without a rank: %v", errs)
	}
	if err := beside.rounds(2, 1); err != nil {
		s.t.Errorf("beside: %v", err)
	}
	w.close()
	if err := errors.Join(beside.rounds(1, 2), s.group(Options{}).rounds(2, 3)); err != nil {
		s.t.Errorf("after: %v", err)
	}
}

// closedInCall closes a group while a rank waits in a call of it.
func (s *several) closedInCall() {
	beside := s.group(Options{})
	for _, a := range []plan.Algorithm{plan.Ring, ""} {
		w := s.group(Options{Algorithm: a, Stuck: time.Hour})
		v := w.floats(0, 100_000)
		before := bytes.Clone(hostBytes(v))
		over := make(chan error)
		go func() { over <- w.groups[0].AllReduce(context.Background(), v, v, elem.Max) }()
		kit.Eventually(s.t, 20*time.Second, func() bool { return w.groups[0].guard.watch.peers.Load() != 0 })
		w.close()
		if err := <-over; err == nil || len(before) == 0 {
			s.t.Errorf("the call that was closed: %v", err)
		}
		if err := errors.Join(s.group(Options{}).rounds(2, 3), beside.rounds(1, 4)); err != nil {
			s.t.Error(err)
		}
	}
}

// cutAtLast makes a group after one that lost a link when one of its ranks had already
// closed it.
func (s *several) cutAtLast() {
	w := s.group(Options{})
	if err := w.groups[1].Close(); err != nil {
		s.t.Fatal(err)
	}
	s.faults.Cut(0, 1)
	w.close()
	s.faults.Heal()
	if err := s.group(Options{Timeout: 5 * time.Second}).rounds(2, 1); err != nil {
		s.t.Error(err)
	}
}

// refused makes a group after one that the ranks could not agree on.
func (s *several) refused() {
	errs := make([]error, len(s.all))
	_ = together(len(s.all), func(r int) error {
		_, errs[r] = New(s.t.Context(), s.all[r], Options{Strict: r == 1, Costs: someCosts()})
		return nil
	})
	for r, err := range errs {
		if !errors.Is(err, ErrInconsistent) {
			s.t.Errorf("rank %d: %v", r, err)
		}
	}
	if err := s.group(Options{}).rounds(2, 1); err != nil {
		s.t.Error(err)
	}
}
