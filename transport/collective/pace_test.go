package collective

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// TestTrickle: a rank sends single bytes from time to time, of elements and of control
// messages: both ranks time out as if nothing had arrived.
func TestTrickle(t *testing.T) {
	for _, algorithm := range []plan.Algorithm{plan.Ring, plan.Doubling, plan.Ordered} {
		for name, ask := range map[string]func(ctx context.Context, w *ranks, r int) error{
			"elements": func(ctx context.Context, w *ranks, r int) error {
				v := w.floats(r, 1<<20)
				return w.groups[r].AllReduce(ctx, v, v, elem.Sum)
			},
			"control": func(ctx context.Context, w *ranks, r int) error { return w.groups[r].Suspend(ctx) },
		} {
			t.Run(string(algorithm)+"/"+name, func(t *testing.T) {
				kit.Check(t)
				w, faults := newFaulty(t, 2, Options{Algorithm: algorithm, Timeout: time.Second, Retry: -1})
				allReduce(t, w, 1<<20) // from now on its arguments are not compared
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				// A control message has at least 16 bytes.
				faults.Trickle(1, 0, 250*time.Millisecond)
				errs := make([]error, 2)
				_ = together(2, func(r int) error {
					errs[r] = ask(ctx, w, r)
					return nil
				})
				for r, err := range errs {
					if err == nil || ctx.Err() != nil {
						t.Errorf("rank %d has waited until %v: %v", r, ctx.Err(), err)
					}
				}
				if !errors.Is(errs[0], ErrTimeout) && !errors.Is(errs[1], ErrTimeout) {
					t.Errorf("rank 0: %v, rank 1: %v", errs[0], errs[1])
				}
			})
		}
	}
}

// TestPace: a rank that makes slow but steady progress does not time out.
func TestPace(t *testing.T) {
	var p pace
	at := uint64(0)
	for i := range 1000 {
		if got := p.advanced(1, at); got != (i == 0) {
			t.Fatalf("%d bytes: %v", at, got)
		}
		at++
	}
	for _, x := range []struct {
		left  int
		bytes uint64
		want  bool
	}{{1, quantum - 1, false}, {1, quantum, true}, {1, quantum + 1, false}, {0, quantum + 1, true}, {3, quantum + 1, true}, {3, 2*quantum + 1, true}} {
		if got := p.advanced(x.left, x.bytes); got != x.want {
			t.Errorf("%d steps left, %d bytes: %v", x.left, x.bytes, got)
		}
	}
}
