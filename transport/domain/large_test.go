package domain

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestMoreThan2GiB uses the largest size of the contract's first case, 2^31 + 1 bytes. The
// last byte is in separate memory. On a slow machine that takes longer than what the other tests wait for.
func TestMoreThan2GiB(t *testing.T) {
	if kit.Race() || testing.Short() {
		t.Skip("it moves 2 GiB")
	}
	kit.Check(t)
	long := kit.Context(t, 10*patience)
	const folds = 2 << 30 / transporttest.Fold
	nodes := job(t, 2, nil)
	c := form(t, nodes, "d", 0, 1)
	var views [2]View
	for i, n := range nodes {
		b, err := n.comm.Table().Register(transporttest.Folded(t, folds, uint64(10*i)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Close(within(t)); err != nil {
				t.Error(err)
			}
		})
		views[i] = view(t, b, 0, 2<<30+1)
	}
	send, err := c[0].Isend(long, views[0], 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(c[1].Recv(long, views[1], 0, 1), send.Wait(long)); err != nil {
		t.Fatal(err)
	}
	got := views[1].buffer
	for _, fold := range []int{0, folds - 1} {
		transporttest.Check(t, got, fold*transporttest.Fold, transporttest.Fold, 0, 0)
	}
	transporttest.Check(t, got, 2<<30, 1, 1, 0)
	// The memory after it is unmodified.
	transporttest.Check(t, got, 2<<30+1, int(got.Size())-(2<<30+1), 11, 1)
}
