package domaintest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/conformance/commtest"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// testNoWorkOnDataPath counts the cost of a buffer that was not prepared: one key for each
// peer, once.
func testNoWorkOnDataPath(t *testing.T, w commtest.Way) {
	job, c := pair(t, w, noEager)
	const n = 10_000
	src, dst := filled(t, job, 0, n, 1), view(t, host(t, job, 1, n), 0, n)
	before := job.nodes[0].domains.Stats()
	for range 200 {
		move(t, c, src, dst, 1, false)
	}
	after := job.nodes[0].domains.Stats()
	if after.Keys-before.Keys != 1 || after.Rendezvous-before.Rendezvous != 200 || after.Eager != before.Eager {
		t.Errorf("%+v became %+v", before, after)
	}
	// Keys are released with their buffers: many short-lived buffers leave none behind.
	for range 300 {
		b, err := job.nodes[0].comm.Table().Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		move(t, c, view(t, b, 0, n), dst, 1, false)
		if err := b.Close(within(t)); err != nil {
			t.Fatal(err)
		}
	}
}

func testMissingRank(t *testing.T, w commtest.Way) {
	job := open(t, w, 3, nil)
	// No address is known for ranks 3 and 7, and rank 1 exists but does not join.
	ranks := []wire.Rank{7, 2, 0, 1, 3}
	// The two that join are connected first, so that the timeout covers only their exchange.
	job.form(t, "first", 0, 2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var made sync.WaitGroup
	for _, i := range []int{0, 2} {
		made.Go(func() {
			_, err := job.nodes[i].domains.NewComm(ctx, "d", ranks)
			var missing *domain.MissingError
			if !errors.As(err, &missing) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("rank %d: %v", i, err)
				return
			}
			if !slices.Equal(missing.Ranks, []wire.Rank{1, 3, 7}) || !strings.Contains(err.Error(), "[rank 1 rank 3 rank 7]") {
				t.Errorf("rank %d: %v", i, err)
			}
		})
	}
	made.Wait()
	// The name is free again, and the messages of the first attempt are void.
	c := job.form(t, "d", 0, 1, 2)
	move(t, c, filled(t, job, 0, 100, 1), view(t, host(t, job, 1, 100), 0, 100), 1, true)
}

// testTimeout waits for a message that is never sent, then continues.
func testTimeout(t *testing.T, w commtest.Way) {
	job, c := pair(t, w, nil)
	v, check := empty(t, job, 1, 100)
	err := c[1].Recv(shortly(t), v, 0, 77)
	var late *domain.TimeoutError
	if !errors.As(err, &late) || late.Peer != 0 || late.Tag != 77 || late.Cycle != nil || !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "rank 0") {
		t.Errorf("got %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err = c[1].Recv(ended, v, 0, 77); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	// The receives that timed out take no message.
	move(t, c, filled(t, job, 0, 100, 3), v, 77, false)
	check(3)
}

// testWithdrawn withdraws a send: its receive, whenever it is posted, takes the next message.
func testWithdrawn(t *testing.T, w commtest.Way) {
	job, c := pair(t, w, noEager)
	const n = 1 << 20
	b := host(t, job, 0, n)
	var late *domain.TimeoutError
	for range 3 {
		if err := c[0].Send(shortly(t), view(t, b, 0, n), 1, 1); !errors.As(err, &late) || !late.Sending {
			t.Errorf("got %v", err)
		}
	}
	v, check := empty(t, job, 1, n)
	move(t, c, filled(t, job, 0, n, 5), v, 1, true)
	check(5)
}

// testCycle lets three ranks send to each other in a ring before any receives.
func testCycle(t *testing.T, w commtest.Way) {
	const ranks, n = 3, 1 << 20
	job := open(t, w, ranks, noEager)
	c := job.form(t, "ring", all(ranks)...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	want := []string{"rank 0 → 1 → 2 → 0", "rank 1 → 2 → 0 → 1", "rank 2 → 0 → 1 → 2"}
	var views [ranks]domain.View
	for i := range ranks {
		views[i] = filled(t, job, i, n, 1)
	}
	together(t, ranks, func(i int) error {
		err := c[i].Send(ctx, views[i], domain.Rank((i+1)%ranks), 1)
		var late *domain.TimeoutError
		if !errors.As(err, &late) || len(late.Cycle) != ranks+1 || !strings.Contains(err.Error(), want[i]) {
			t.Errorf("rank %d: %v", i, err)
		}
		return nil
	})
	// Also without a cycle: rank 2 waits for rank 1, which does not wait.
	err := c[2].Recv(shortly(t), view(t, host(t, job, 2, n), 0, n), 1, 1)
	var late *domain.TimeoutError
	if !errors.As(err, &late) || late.Cycle != nil {
		t.Errorf("no cycle: %v", err)
	}
	// All ranks are usable afterwards.
	together(t, ranks, func(i int) error {
		right, left := domain.Rank((i+1)%ranks), domain.Rank((i+ranks-1)%ranks)
		v, check := empty(t, job, i, n)
		if err := c[i].SendRecv(within(t), filled(t, job, i, n, uint64(i)), right, v, left, 1); err != nil {
			return err
		}
		check(uint64(left))
		return nil
	})
}

// pending starts one of each kind of request that rank 1 does not answer.
func pending(t *testing.T, job *world, c *domain.Comm) []*domain.Request {
	t.Helper()
	const n = 1 << 20
	var out []*domain.Request
	keep := func(r *domain.Request, err error) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	keep(c.Isend(within(t), filled(t, job, 0, n, 1), 1, 99))
	keep(c.Irecv(within(t), view(t, host(t, job, 0, n), 0, n), 1, 98))
	keep(c.Irecv(within(t), view(t, host(t, job, 0, 10), 0, 10), 1, 97))
	return out
}

// demand waits for all requests to fail with one error.
func demand(t *testing.T, all []*domain.Request, want error) {
	t.Helper()
	for i, r := range all {
		if err := r.Wait(within(t)); !errors.Is(err, want) {
			t.Errorf("request %d: %v, not %v", i, err, want)
		}
	}
}

// testDestroy destroys a domain with pending requests, on either side, while another domain of
// the same ranks continues to work.
func testDestroy(t *testing.T, w commtest.Way) {
	for name, destroys := range map[string]int{"own": 0, "peer": 1} {
		t.Run(name, func(t *testing.T) {
			job, c := pair(t, w, nil)
			other := job.form(t, "other", 1, 0)
			requests := pending(t, job, c[0])
			waiting := make(chan error, 1)
			v := view(t, host(t, job, 0, 10), 0, 10)
			go func() { waiting <- c[0].Recv(within(t), v, 1, 96) }()
			// A message that was complete before the end of its sender is still received.
			if err := c[1].Send(within(t), filled(t, job, 1, 100, 6), 0, 1); err != nil {
				t.Fatal(err)
			}
			if err := c[destroys].Destroy(); err != nil {
				t.Fatal(err)
			}
			want := []error{domain.ErrDestroyed, domain.ErrLeft}[destroys]
			demand(t, requests, want)
			if err := <-waiting; !errors.Is(err, want) {
				t.Errorf("a receive: %v", err)
			}
			got, check := empty(t, job, 0, 100)
			if destroys == 1 {
				if err := c[0].Recv(within(t), got, 1, 1); err != nil {
					t.Error(err)
				}
				check(6)
			}
			if err := c[0].Send(within(t), v, 1, 1); !errors.Is(err, want) {
				t.Errorf("afterwards: %v", err)
			}
			move(t, []*domain.Comm{other[1], other[0]}, filled(t, job, 0, 1<<20, 2), view(t, host(t, job, 1, 1<<20), 0, 1<<20), 1, true)
			// The name can be reused.
			if err := c[1-destroys].Destroy(); err != nil {
				t.Fatal(err)
			}
			again := job.form(t, "pair", 0, 1)
			move(t, again, filled(t, job, 0, 100, 2), view(t, host(t, job, 1, 100), 0, 100), 1, true)
		})
	}
}

// testPeerGone ends the session of one pair: its requests fail, the other pairs continue, and
// a newly formed domain works.
func testPeerGone(t *testing.T, w commtest.Way) {
	job := open(t, w, 3, nil)
	c := job.form(t, "all", all(3)...)
	requests := pending(t, job, c[0])
	if err := job.nodes[1].comm.Disconnect(0); err != nil {
		t.Fatal(err)
	}
	demand(t, requests, control.ErrDisconnected)
	if err := c[0].Send(within(t), filled(t, job, 0, 10, 1), 1, 1); !errors.Is(err, control.ErrDisconnected) {
		t.Errorf("afterwards: %v", err)
	}
	for _, a := range []int{0, 1} {
		two := []*domain.Comm{c[a], c[2]}
		send, err := two[0].Isend(within(t), filled(t, job, a, 1<<20, 4), 2, 1)
		if err != nil {
			t.Fatal(err)
		}
		v, check := empty(t, job, 2, 1<<20)
		if err := errors.Join(two[1].Recv(within(t), v, domain.Rank(a), 1), send.Wait(within(t))); err != nil {
			t.Errorf("another pair: %v", err)
		}
		check(4)
	}
	for _, one := range c {
		if err := one.Destroy(); err != nil {
			t.Fatal(err)
		}
	}
	c = job.form(t, "all", all(3)...)
	move(t, c, filled(t, job, 0, 1<<20, 1), view(t, host(t, job, 1, 1<<20), 0, 1<<20), 1, true)
}

// testStalledPair fills the window of a receiver that does not receive: only its sender waits,
// and no other, not even the same two ranks in another domain.
func testStalledPair(t *testing.T, w commtest.Way) {
	job := open(t, w, 4, func(o *domain.Options) { o.Window = domain.MinWindow })
	c := job.form(t, "all", all(4)...)
	beside := job.form(t, "beside", 0, 1)
	const n = 10_000
	src := filled(t, job, 0, n, 1)
	var stalled []*domain.Request
	for range 2 * domain.MinWindow / n {
		r, err := c[0].Isend(within(t), src, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		stalled = append(stalled, r)
	}
	if done, _ := stalled[len(stalled)-1].Test(); done {
		t.Error("more was sent than the receiver takes")
	}
	two := []*domain.Comm{c[2], c[3]}
	for k := range 200 {
		v, check := empty(t, job, 3, n)
		send, err := two[0].Isend(within(t), filled(t, job, 2, n, uint64(k)), 3, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(two[1].Recv(within(t), v, 2, 1), send.Wait(within(t))); err != nil {
			t.Fatalf("another pair: %v", err)
		}
		check(uint64(k))
		move(t, beside, src, view(t, host(t, job, 1, n), 0, n), 1, false)
	}
	// Messages with another tag of the stalled pair get through too.
	move(t, c, src, view(t, host(t, job, 1, n), 0, n), 2, true)
	for range stalled {
		v, check := empty(t, job, 1, n)
		if err := c[1].Recv(within(t), v, 0, 1); err != nil {
			t.Fatal(err)
		}
		check(1)
	}
	for _, r := range stalled {
		if err := r.Wait(within(t)); err != nil {
			t.Error(err)
		}
	}
}
