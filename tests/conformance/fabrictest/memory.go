package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// mapped returns a world of ranks that map each other's memory. It skips the test if they don't.
func mapped(t *testing.T, open Open, n int) *World {
	t.Helper()
	w := open(t, n)
	if !w.Ranks[0].Mapped() {
		t.Skip("memory is not mapped")
	}
	return w
}

// near returns the ranks on the host of one of them.
func near(f fabric.Fabric) (ranks []plan.Rank) {
	nodes := f.Nodes()
	for r, n := range nodes {
		if n == nodes[f.Rank()] {
			ranks = append(ranks, plan.Rank(r))
		}
	}
	return ranks
}

// testSignals lets the ranks write in turn, and check the values written before.
func testSignals(t *testing.T, open Open) {
	for _, n := range []int{2, 5} {
		w, ctx := mapped(t, open, n), within(t)
		if len(near(w.Ranks[0])) < n {
			t.Skip("the ranks are on several hosts")
		}
		// The rank whose turn it is reads and writes it. It is atomic only for the race detector,
		// which does not see that counters are shared memory.
		var written atomic.Uint64
		const rounds = 300
		w.each(t, func(f fabric.Fabric) error {
			s, me := f.Signals(), uint64(f.Rank())
			before := plan.Rank((int(me) + n - 1) % n)
			for round := range uint64(rounds) {
				// The previous rank has had its turn in this round, or rank 0's in the last one.
				need := round + 1
				if me == 0 {
					need = round
				}
				if err := s.Await(ctx, before, need); err != nil {
					return err
				}
				if got := written.Load(); got != round*uint64(n)+me {
					return fmt.Errorf("round %d: %d", round, got)
				}
				written.Store(round*uint64(n) + me + 1)
				if round%50 == 0 {
					idle(ctx, time.Millisecond)
				}
				s.Arrive(round + 1)
			}
			if got := s.Get(plan.Rank(me)); got != rounds {
				return fmt.Errorf("our own counter is %d", got)
			}
			return nil
		})
	}
}

// testShare lets each rank write to the memory of the others.
func testShare(t *testing.T, open Open) {
	const n, part = 4, 10_000
	w, ctx := mapped(t, open, n), within(t)
	for turn := range uint64(2) {
		w.each(t, func(f fabric.Fabric) error {
			b := w.Alloc(t, int(f.Rank()), n*part)
			s, err := f.Share(ctx, b)
			if err != nil {
				return err
			}
			for _, p := range near(f) {
				copy(s.Bytes(p)[int(f.Rank())*part:], kit.Bytes(seed(f.Rank(), p), 0, part))
			}
			if err := meet(ctx, f, turn*2+1); err != nil {
				return err
			}
			for _, p := range near(f) {
				if at := kit.DiffAt(b.Host(devices.Offset(p)*part, part), seed(p, f.Rank()), 0); at >= 0 {
					return fmt.Errorf("byte %d of rank %d differs", at, p)
				}
			}
			if err := meet(ctx, f, turn*2+2); err != nil {
				return err
			}
			return errors.Join(s.Close(), s.Close())
		})
	}
}

// meet is a barrier.
func meet(ctx context.Context, f fabric.Fabric, value uint64) error {
	f.Signals().Arrive(value)
	for _, p := range near(f) {
		if err := f.Signals().Await(ctx, p, value); err != nil {
			return err
		}
	}
	return nil
}

// testUnmapped shares memory that one rank cannot map.
func testUnmapped(t *testing.T, open Open) {
	w, ctx := open(t, 3), within(t)
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table := region.NewTable(e)
	device, err := table.RegisterDevice(transporttest.Simulated(t, 4096, sim.Params{}).All())
	if err != nil {
		t.Fatal(err)
	}
	closed := w.Alloc(t, 2, 4096)
	if err = closed.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []*region.Buffer{device, closed} {
		w.each(t, func(f fabric.Fabric) error {
			b := bad
			if f.Rank() != 2 {
				b = w.Alloc(t, int(f.Rank()), 4096)
			}
			if s, serr := f.Share(ctx, b); !errors.Is(serr, fabric.ErrUnmapped) {
				return fmt.Errorf("%v, %w", s, serr)
			}
			return nil
		})
	}
	if err = errors.Join(device.Close(ctx), e.Close()); err != nil {
		t.Error(err)
	}
}

// testMissing calls Share and Reform while one rank does not.
func testMissing(t *testing.T, open Open) {
	w := open(t, 3)
	var missing *fabric.MissingError
	var all sync.WaitGroup
	for _, f := range w.Ranks[:2] {
		all.Go(func() {
			err := f.Reform(shortly(t))
			if !errors.As(err, &missing) || len(missing.Ranks) == 0 || missing.Ranks[len(missing.Ranks)-1] != 2 {
				t.Errorf("rank %d: %v", f.Rank(), err)
			}
		})
		all.Wait()
	}
}
