package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
)

// duplicates creates a copy at all ranks.
func (w *World) duplicates(ctx context.Context, t testing.TB) *World {
	t.Helper()
	c := &World{Ranks: make([]fabric.Fabric, len(w.Ranks)), Alloc: w.Alloc}
	w.each(t, func(f fabric.Fabric) (err error) {
		c.Ranks[f.Rank()], err = f.Duplicate(ctx)
		return err
	})
	return c
}

// same compares the ranks and nodes of a copy with those of its fabric.
func same(f, c fabric.Fabric) error {
	if c.Rank() != f.Rank() || c.Size() != f.Size() || c.Mapped() != f.Mapped() || fmt.Sprint(c.Nodes()) != fmt.Sprint(f.Nodes()) {
		return fmt.Errorf("rank %d of %d on %v, not %d of %d on %v", c.Rank(), c.Size(), c.Nodes(), f.Rank(), f.Size(), f.Nodes())
	}
	return nil
}

// testDuplicate uses a fabric and copies of it at once: each has its own streams, counters and
// shared memory, and ends independently.
func testDuplicate(t *testing.T, open Open) {
	w, ctx := open(t, 3), within(t)
	one, two := w.duplicates(ctx, t), w.duplicates(ctx, t)
	deeper := one.duplicates(ctx, t)
	together := &World{Alloc: w.Alloc}
	for _, x := range []*World{w, one, two, deeper} {
		together.Ranks = append(together.Ranks, x.Ranks...)
	}
	together.each(t, func(f fabric.Fabric) error {
		if s := f.Signals(); s != nil && s.Get(f.Rank()) != 0 {
			return fmt.Errorf("a counter begins with %d", s.Get(f.Rank()))
		}
		return errors.Join(same(w.Ranks[f.Rank()], f), w.use(ctx, t, f, 1))
	})
	together.each(t, func(f fabric.Fabric) error { return f.Reform(ctx) })
	together.each(t, func(f fabric.Fabric) error { return w.use(ctx, t, f, 2) })
	one.each(t, func(f fabric.Fabric) error { return errors.Join(f.Close(), f.Close()) })
	three := w.duplicates(ctx, t)
	for _, x := range []*World{w, two, three} {
		x.each(t, func(f fabric.Fabric) error { return exchange(ctx, f, 10_000) })
	}
	for _, f := range deeper.Ranks {
		if err := f.Reform(ctx); err == nil {
			t.Error("a copy of a fabric that was closed is in use")
		}
	}
}

// use exchanges bytes, and shares memory if the fabric maps it.
func (w *World) use(ctx context.Context, t testing.TB, f fabric.Fabric, turn uint64) error {
	t.Helper()
	if err := exchange(ctx, f, 50_000); err != nil || !f.Mapped() {
		return err
	}
	s, err := f.Share(ctx, w.Alloc(t, int(f.Rank()), 4096))
	if err != nil {
		return err
	}
	return errors.Join(meet(ctx, f, turn), s.Close())
}

// testDuplicateEnds closes a fabric that has a copy: the copy ends at the other ranks, too.
func testDuplicateEnds(t *testing.T, open Open) {
	w, ctx := open(t, 2), within(t)
	c := w.duplicates(ctx, t)
	if err := w.Ranks[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := lost(receive(ctx, c.Ranks[1], 0, make([]byte, 10)), 0); err != nil {
		t.Error(err)
	}
	if _, err := w.Ranks[0].Duplicate(ctx); err == nil {
		t.Error("a fabric that is closed was duplicated")
	}
	if _, err := w.Ranks[1].Duplicate(ctx); !errors.Is(err, fabric.ErrLink) {
		t.Errorf("duplicate without a rank: %v", err)
	}
}

// testDuplicateLate calls Duplicate on all ranks but one: the others get an error, and all can
// repeat the call after that.
func testDuplicateLate(t *testing.T, open Open) {
	w, ctx := open(t, 3), within(t)
	for range 2 {
		var all sync.WaitGroup
		for _, f := range w.Ranks[:2] {
			all.Go(func() {
				if _, err := f.Duplicate(shortly(t)); !errors.Is(err, fabric.ErrLink) {
					t.Errorf("duplicate without a rank: %v", err)
				}
			})
		}
		all.Wait()
		c := w.duplicates(ctx, t)
		for _, x := range []*World{c, w} { // closing the copy must not affect the links of the fabric itself
			x.each(t, func(f fabric.Fabric) error { return exchange(ctx, f, 10_000) })
		}
	}
}
