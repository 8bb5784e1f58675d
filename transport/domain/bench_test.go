package domain

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/transporttest"
)

// median is that of some times.
func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkMulti is 1000 × 4 KiB as one message, and as as many.
func BenchmarkMulti(b *testing.B) {
	const parts, part = 1000, 4096
	nodes := job(b, 2, nil)
	c := form(b, nodes, "d", 0, 1)
	src, dst := nodes[0].host(b, parts*part*2), nodes[1].host(b, parts*part*2)
	transporttest.Fill(b, src, 1)
	var from, to []View
	for i := range parts {
		// Pieces that don't touch, so that nothing is joined.
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

// BenchmarkIsend is how long Isend of 64 MiB takes to return where nobody
// receives.
func BenchmarkIsend(b *testing.B) {
	nodes := job(b, 2, nil)
	c := form(b, nodes, "d", 0, 1)
	const size = 64 << 20
	src, dst := nodes[0].host(b, size), nodes[1].host(b, size)
	var times []time.Duration
	for b.Loop() {
		start := time.Now()
		r, err := c[0].Isend(b.Context(), view(b, src, 0, size), 1, 1)
		times = append(times, time.Since(start))
		if err != nil {
			b.Fatal(err)
		}
		if err = c[1].Recv(b.Context(), view(b, dst, 0, size), 0, 1); err != nil {
			b.Fatal(err)
		}
		if err = r.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(median(times).Nanoseconds())/1000, "us-return")
}

// BenchmarkPingPong is a message there and one back.
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
