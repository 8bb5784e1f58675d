package domain

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
)

// median returns the median of some times.
func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkMulti sends 1000 × 4 KiB as one message, and as 1000 messages.
func BenchmarkMulti(b *testing.B) {
	const parts, part = 1000, 4096
	nodes := job(b, 2, nil)
	c := form(b, nodes, "d", 0, 1)
	src, dst := nodes[0].host(b, parts*part*2), nodes[1].host(b, parts*part*2)
	transporttest.Fill(b, src, 1)
	var from, to []View
	for i := range parts {
		// Pieces that are not adjacent, so that none are merged.
		from, to = append(from, view(b, src, 2*i*part, part)), append(to, view(b, dst, 2*i*part, part))
	}
	ctx := b.Context()
	run := func(send, recv func() error) time.Duration {
		start := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			if err := send(); err != nil {
				b.Error(err)
			}
		})
		if err := recv(); err != nil {
			b.Error(err)
		}
		all.Wait()
		return time.Since(start)
	}
	each := func(op func(View) error, views []View) func() error {
		return func() error {
			for _, v := range views {
				if err := op(v); err != nil {
					return err
				}
			}
			return nil
		}
	}
	var single, multi []time.Duration
	for b.Loop() {
		single = append(single, run(
			each(func(v View) error { return c[0].Send(ctx, v, 1, 1) }, from), each(func(v View) error { return c[1].Recv(ctx, v, 0, 1) }, to)))
		multi = append(multi, run(
			func() error { return c[0].SendMulti(ctx, from, 1, 2) }, func() error { return c[1].RecvMulti(ctx, to, 0, 2) }))
	}
	b.ReportMetric(float64(median(single))/float64(median(multi)), "times-faster")
	b.ReportMetric(float64(median(single).Microseconds()), "us-1000-sends")
	b.ReportMetric(float64(median(multi).Microseconds()), "us-multi")
}

// BenchmarkIsend measures how long Isend of 64 MiB takes to return without a receiver.
func BenchmarkIsend(b *testing.B) {
	nodes := job(b, 2, func(o *Options) { o.Window = MaxWindow })
	c := form(b, nodes, "d", 0, 1)
	const size = 64 << 20
	v := view(b, nodes[0].host(b, size), 0, size)
	var times []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		_, err := c[0].Isend(b.Context(), v, 1, 1)
		times = append(times, time.Since(start))
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(median(times).Nanoseconds())/1000, "us-median")
	if err := c[0].Destroy(); err != nil {
		b.Error(err)
	}
}

// BenchmarkStalled measures a round trip of a pair alongside a stalled pair, whose receiver
// sleeps and whose sender waits, as a ratio to the time before: for two other ranks, and
// for the same two in another domain.
func BenchmarkStalled(b *testing.B) {
	nodes := job(b, 4, func(o *Options) { o.Window = MinWindow })
	c, beside := form(b, nodes, "all", 0, 1, 2, 3), form(b, nodes, "beside", 0, 1)
	const n = 32 << 10
	var views [4]View
	for i := range views {
		views[i] = view(b, nodes[i].host(b, n), 0, n)
	}
	var others, same, othersStalled, sameStalled []time.Duration
	for b.Loop() {
		others, same = append(others, there(b, c[2:], views[2:])), append(same, there(b, beside, views[:2]))
		var pending []*Request
		for range 2 * MinWindow / n {
			r, err := c[0].Isend(b.Context(), views[0], 1, 9)
			if err != nil {
				b.Fatal(err)
			}
			pending = append(pending, r)
		}
		var blocked sync.WaitGroup
		blocked.Go(func() {
			if err := pending[len(pending)-1].Wait(b.Context()); err != nil {
				b.Error(err)
			}
		})
		othersStalled, sameStalled = append(othersStalled, there(b, c[2:], views[2:])), append(sameStalled, there(b, beside, views[:2]))
		for range pending {
			if err := c[1].Recv(b.Context(), views[1], 0, 9); err != nil {
				b.Fatal(err)
			}
		}
		blocked.Wait()
	}
	b.ReportMetric(float64(median(othersStalled))/float64(median(others)), "ratio-others")
	b.ReportMetric(float64(median(sameStalled))/float64(median(same)), "ratio-same-ranks")
}

// BenchmarkFirst measures the first round trip of a new domain, as a ratio to the median of
// the next ones.
func BenchmarkFirst(b *testing.B) {
	for name, n := range map[string]devices.Size{"4KiB": 4 << 10, "1MiB": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			nodes := job(b, 2, nil)
			x, y := nodes[0].host(b, n), nodes[1].host(b, n)
			var ratios []time.Duration
			for b.Loop() {
				c := form(b, nodes, "first", 0, 1)
				if err := errors.Join(c[0].Prepare(b.Context(), x), c[1].Prepare(b.Context(), y)); err != nil {
					b.Fatal(err)
				}
				views := []View{view(b, x, 0, int(n)), view(b, y, 0, int(n))}
				first := once(b, c, views)
				var next []time.Duration
				for range 50 {
					next = append(next, once(b, c, views))
				}
				ratios = append(ratios, 1000*first/median(next))
				if err := errors.Join(c[0].Destroy(), c[1].Destroy()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(median(ratios))/1000, "first-to-median")
		})
	}
}

// once returns the time of a round trip between two ranks.
func once(b *testing.B, c []*Comm, v []View) time.Duration {
	b.Helper()
	return messages(b, c, v, 1)
}

// there returns the time of 200 round trips between two ranks.
func there(b *testing.B, c []*Comm, v []View) time.Duration {
	b.Helper()
	return messages(b, c, v, 200)
}

// messages returns the time of some round trips.
func messages(b *testing.B, c []*Comm, v []View, rounds int) time.Duration {
	b.Helper()
	ctx := b.Context()
	first, second := c[0].Rank(), c[1].Rank()
	var both sync.WaitGroup
	start := time.Now()
	both.Go(func() {
		for range rounds {
			if err := errors.Join(c[1].Recv(ctx, v[1], first, 1), c[1].Send(ctx, v[1], first, 2)); err != nil {
				b.Error(err)
			}
		}
	})
	for range rounds {
		if err := errors.Join(c[0].Send(ctx, v[0], second, 1), c[0].Recv(ctx, v[0], second, 2)); err != nil {
			b.Error(err)
		}
	}
	both.Wait()
	return time.Since(start)
}

// BenchmarkPingPong measures round trips.
func BenchmarkPingPong(b *testing.B) {
	for name, n := range map[string]int{"8": 8, "4KiB": 4096, "64KiB": 65536, "256KiB": 256 << 10, "1MiB": 1 << 20} {
		b.Run(name+"/eager", func(b *testing.B) {
			benchPingPong(b, n, func(o *Options) { o.Eager, o.Window = 4<<20, 64<<20 })
		})
		b.Run(name+"/rendezvous", func(b *testing.B) { benchPingPong(b, n, func(o *Options) { o.NoEager = true }) })
	}
}

func benchPingPong(b *testing.B, n int, tweak func(*Options)) {
	b.Helper()
	nodes := job(b, 2, tweak)
	c := form(b, nodes, "d", 0, 1)
	x, y := view(b, nodes[0].host(b, devices.Size(n)), 0, n), view(b, nodes[1].host(b, devices.Size(n)), 0, n)
	ctx := b.Context()
	var answers sync.WaitGroup
	answers.Go(func() {
		for c[1].Recv(ctx, y, 0, 1) == nil {
			if err := c[1].Send(ctx, y, 0, 1); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportAllocs()
	for b.Loop() {
		if err := c[0].Send(ctx, x, 1, 1); err != nil {
			b.Fatal(err)
		}
		if err := c[0].Recv(ctx, x, 1, 1); err != nil {
			b.Fatal(err)
		}
	}
	if err := c[0].Destroy(); err != nil {
		b.Error(err)
	}
	answers.Wait()
}
