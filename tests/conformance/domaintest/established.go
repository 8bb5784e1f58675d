package domaintest

import (
	"context"
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/tests/conformance/commtest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// effort counts the resources of a rank: none is added once the domain is formed and its
// buffers are prepared.
type effort struct {
	dials  comm.Stats
	memory region.Stats
	keys   uint64
}

func (n *node) effort() effort {
	return effort{n.comm.Stats(), n.comm.Table().Stats(), n.domains.Stats().Keys}
}

// testEstablished counts connections, registrations and keys from the first operation on: a
// domain sets up everything when it is formed.
func testEstablished(t *testing.T, w commtest.Way) {
	const ranks, n = 3, 3 * domain.DefaultEager
	job := open(t, w, ranks, nil)
	c := job.form(t, "d", all(ranks)...)
	var bufs [ranks]*region.Buffer
	var before [ranks]effort
	dials := uint64(0)
	for i := range ranks {
		bufs[i] = host(t, job, i, n)
		if err := c[i].Prepare(within(t), bufs[i]); err != nil {
			t.Fatal(err)
		}
		before[i] = job.nodes[i].effort()
		dials += before[i].dials.Dials
	}
	if dials%3 != 0 || dials/3 < 2 {
		t.Errorf("%d connections for 3 pairs", dials)
	}
	rounds := 10_000
	if kit.Race() || testing.Short() {
		rounds = 300
	}
	ctx := within(t)
	together(t, ranks, func(i int) error {
		for k := range rounds {
			size := 64
			if k%100 == 0 {
				size = n
			}
			if err := rotate(ctx, c[i], view(t, bufs[i], 0, size)); err != nil {
				return err
			}
			if now := job.nodes[i].effort(); (k == 0 || k == rounds-1) && now != before[i] {
				t.Errorf("rank %d: after %d operations %+v became %+v", i, k+1, before[i], now)
			}
		}
		return nil
	})
}

// rotate sends a view to the right and receives one from the left. The last rank sends first,
// so that large messages don't wait in a cycle.
func rotate(ctx context.Context, c *domain.Comm, v domain.View) error {
	n := domain.Rank(c.Size())
	right, left := (c.Rank()+1)%n, (c.Rank()+n-1)%n
	if c.Rank() == n-1 {
		return errors.Join(c.Send(ctx, v, right, 1), c.Recv(ctx, v, left, 1))
	}
	return errors.Join(c.Recv(ctx, v, left, 1), c.Send(ctx, v, right, 1))
}
