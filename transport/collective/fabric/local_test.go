package fabric_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/fabrictest"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// local makes ranks in this process.
func local(t testing.TB, n int) *fabrictest.World {
	t.Helper()
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := fabric.Local(n)
	if err != nil {
		t.Fatal(err)
	}
	table := region.NewTable(e)
	t.Cleanup(func() {
		errs := []error{e.Close()}
		for _, f := range all {
			errs = append(errs, f.Close())
		}
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		if live := table.Stats().Live; live != 0 {
			t.Errorf("%d registrations are left", live)
		}
	})
	return &fabrictest.World{Ranks: all, Alloc: func(t testing.TB, _ int, n devices.Size) *region.Buffer {
		t.Helper()
		b, err := table.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return b
	}}
}

func TestLocal(t *testing.T) { fabrictest.Run(t, local) }

func TestLocalSizes(t *testing.T) {
	for _, n := range []int{-1, 0, plan.MaxRanks + 1} {
		if _, err := fabric.Local(n); err == nil {
			t.Errorf("%d ranks", n)
		}
	}
	all, err := fabric.Local(plan.MaxRanks)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if err = f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkLocal(b *testing.B) { fabrictest.Bench(b, local) }
