package content

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestGate frees memory behind readers of several generations: a free runs when those that entered before it
// have left, in whatever order they leave, and at once if there are none.
func TestGate(t *testing.T) {
	kit.Check(t)
	var g gate
	var ran []int
	free := func(i int) { g.after(func() { ran = append(ran, i) }) }
	want := func(all ...int) {
		t.Helper()
		if !slices.Equal(ran, all) {
			t.Fatalf("ran %v, not %v", ran, all)
		}
	}
	for round := range 3 { // the gate is as new after each
		ran = nil
		free(0)
		want(0)
		a, b := g.enter(), g.enter()
		free(1)
		c := g.enter()
		free(2)
		free(3)
		d := g.enter()
		g.leave(a)
		want(0)
		g.leave(c)
		want(0) // 2 and 3 are behind b as well
		g.leave(b)
		want(0, 1, 2, 3)
		free(4)
		want(0, 1, 2, 3)
		g.leave(d)
		want(0, 1, 2, 3, 4)
		if n := g.state.Load(); n != 0 || g.last != nil {
			t.Fatalf("round %d: state %#x", round, n)
		}
	}
}

// TestGateAmongMany replaces what readers find, again and again, and frees what they found before: never while one of them uses
// it, and all of it at the end.
func TestGateAmongMany(t *testing.T) {
	kit.Check(t)
	const readers, frees = 4, 5000
	type memory struct{ freed atomic.Int64 }
	var g gate
	var now atomic.Pointer[memory]
	var wrong, done atomic.Int64
	var over atomic.Bool
	now.Store(&memory{})
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			for !over.Load() {
				in := g.enter()
				m := now.Load()
				for range 3 {
					if m.freed.Load() > 0 {
						wrong.Add(1)
					}
				}
				g.leave(in)
			}
		})
	}
	for range frees {
		old := now.Swap(&memory{})
		g.after(func() {
			if old.freed.Add(1) == 1 {
				done.Add(1)
			}
		})
	}
	over.Store(true)
	all.Wait()
	if wrong.Load() != 0 || done.Load() != frees || g.state.Load() != 0 {
		t.Errorf("%d uses of freed memory, %d of %d freed, state %#x", wrong.Load(), done.Load(), frees, g.state.Load())
	}
}
