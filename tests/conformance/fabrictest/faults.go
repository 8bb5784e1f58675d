package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// testClosed receives the bytes sent before the end of a rank, and then the end.
func testClosed(t *testing.T, open Open) {
	w, ctx := open(t, 2), within(t)
	a, b := w.Ranks[0], w.Ranks[1]
	const n = 1000
	if err := send(ctx, a, 1, nil, kit.Bytes(1, 0, n)); err != nil {
		t.Fatal(err)
	}
	if s := a.Signals(); s != nil {
		s.Arrive(5)
	}
	if err := errors.Join(a.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, n)
	if err := receive(ctx, b, 0, got); err != nil || kit.DiffAt(got, 1, 0) >= 0 {
		t.Errorf("what came before the end: %v", err)
	}
	if err := lost(receive(ctx, b, 0, got), 0); err != nil {
		t.Error(err)
	}
	if err := lost(flood(ctx, b, 0), 0); err != nil {
		t.Error(err)
	}
	if s := b.Signals(); s != nil {
		if err := s.Await(ctx, 0, 5); err != nil {
			t.Errorf("what was set before the end: %v", err)
		}
		if err := lost(s.Await(ctx, 0, 6), 0); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.Link(1).TrySend(got, nil); !errors.Is(err, fabric.ErrLink) {
		t.Errorf("send after our own end: %v", err)
	}
	var missing *fabric.MissingError
	if err := b.Reform(ctx); !errors.As(err, &missing) || len(missing.Ranks) != 1 || missing.Ranks[0] != 0 {
		t.Errorf("reform without a rank: %v", err)
	}
}

// flood sends until an error.
func flood(ctx context.Context, f fabric.Fabric, to plan.Rank) error {
	p := make([]byte, 1<<16)
	for {
		if err := send(ctx, f, to, nil, p); err != nil {
			return err
		}
	}
}

// drain receives until an error.
func drain(ctx context.Context, f fabric.Fabric, from plan.Rank) error {
	p := make([]byte, 1<<16)
	for {
		if err := receive(ctx, f, from, p); err != nil {
			return err
		}
	}
}

// testCut breaks a link, and creates it anew.
func testCut(t *testing.T, open Open) {
	w, ctx := open(t, 3), within(t)
	if w.Cut == nil {
		t.Skip("links can't be cut")
	}
	for turn := range 3 {
		w.Cut(t, 0, 1)
		w.each(t, func(f fabric.Fabric) error {
			switch f.Rank() {
			case 0:
				if err := lost(flood(ctx, f, 1), 1); err != nil {
					return err
				}
			case 1:
				if err := lost(drain(ctx, f, 0), 0); err != nil {
					return err
				}
			}
			// Half a message is in flight meanwhile.
			if f.Rank() == 2 {
				if err := send(ctx, f, 0, []byte{1, 2, 3}, nil); err != nil && !errors.Is(err, fabric.ErrLink) {
					return err
				}
			}
			if err := f.Reform(ctx); err != nil {
				return fmt.Errorf("turn %d: %w", turn, err)
			}
			return exchange(ctx, f, 100_000)
		})
	}
}

// testReform empties all links.
func testReform(t *testing.T, open Open) {
	w, ctx := open(t, 3), within(t)
	for range 3 {
		w.each(t, func(f fabric.Fabric) error {
			for p := range plan.Rank(3) {
				if p != f.Rank() {
					// A rank that is already in Reform has no links.
					if err := send(ctx, f, p, []byte{9}, make([]byte, 1000)); err != nil && !errors.Is(err, fabric.ErrLink) {
						return err
					}
				}
			}
			if err := f.Reform(ctx); err != nil {
				return err
			}
			return exchange(ctx, f, 100_000)
		})
	}
}

// testKilled kills a rank.
func testKilled(t *testing.T, open Open) {
	w, ctx := open(t, 3), within(t)
	if w.Kill == nil {
		t.Skip("ranks can't be killed")
	}
	w.Kill(t, 2)
	for _, f := range w.Ranks[:2] {
		if err := lost(receive(ctx, f, 2, make([]byte, 10)), 2); err != nil {
			t.Error(err)
		}
		var missing *fabric.MissingError
		if err := f.Reform(ctx); !errors.As(err, &missing) || missing.Ranks[len(missing.Ranks)-1] != 2 {
			t.Errorf("reform without a rank: %v", err)
		}
	}
}

// testReforming lets a rank start to reform while the others wait for it.
func testReforming(t *testing.T, open Open) {
	w, ctx := open(t, 3), within(t)
	w.each(t, func(f fabric.Fabric) error {
		if f.Rank() != 0 {
			if err := lost(receive(ctx, f, 0, make([]byte, 10)), 0); err != nil {
				return err
			}
			if s := f.Signals(); s != nil && len(near(f)) > 2 {
				if err := lost(s.Await(ctx, 0, 1), 0); err != nil {
					return err
				}
			}
		}
		if err := f.Reform(ctx); err != nil {
			return err
		}
		return exchange(ctx, f, 10_000)
	})
}
