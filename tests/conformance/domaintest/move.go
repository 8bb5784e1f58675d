package domaintest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices/elem"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/commtest"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// sizes returns the sizes of the contract, and those around the limit of eager sends.
func sizes() []int {
	return []int{0, 1, 4095, 4096, domain.DefaultEager, domain.DefaultEager + 1, 1<<20 + 1}
}

// both runs a test with eager sends, and without.
func both(t *testing.T, fn func(t *testing.T, tweak func(*domain.Options))) {
	t.Helper()
	t.Run("eager", func(t *testing.T) { fn(t, nil) })
	t.Run("rendezvous", func(t *testing.T) { fn(t, noEager) })
}

func testSizes(t *testing.T, w commtest.Way) {
	both(t, func(t *testing.T, tweak func(*domain.Options)) {
		t.Helper()
		job, c := pair(t, w, tweak)
		moves(t, job, c, host, host)
	})
}

func testDeviceMemory(t *testing.T, w commtest.Way) {
	job, c := pair(t, w, nil)
	t.Run("to host", func(t *testing.T) { moves(t, job, c, device, host) })
	t.Run("from host", func(t *testing.T) { moves(t, job, c, host, device) })
	t.Run("both", func(t *testing.T) { moves(t, job, c, device, device) })
	t.Run("several", func(t *testing.T) {
		src, dst := device(t, job, 0, 300_000), device(t, job, 1, 300_000)
		transporttest.Fill(t, src, 3)
		// Host and device memory in one message, small and large.
		const a, b = 5000, 100_000
		hostSrc, hostDst := filled(t, job, 0, a, 4), host(t, job, 1, a)
		together(t, 2, func(i int) error {
			if i == 0 {
				return c[0].SendMulti(within(t), []domain.View{view(t, src, 7, b), hostSrc, view(t, src, b+7, a)}, 1, 1)
			}
			return c[1].RecvMulti(within(t), []domain.View{view(t, dst, 0, b), view(t, hostDst, 0, a), view(t, dst, b, a)}, 0, 1)
		})
		transporttest.Check(t, dst, 0, a+b, 3, 7)
		transporttest.Check(t, hostDst, 0, a, 4, 0)
	})
}

// moves sends all sizes, each with the receive posted before the send and after it.
func moves(t *testing.T, job *world, c []*domain.Comm, from, to memory) {
	t.Helper()
	most := 1<<20 + 1
	src, dst := from(t, job, 0, most+9), to(t, job, len(job.nodes)-1, most+9)
	transporttest.Fill(t, src, 1)
	for i, n := range sizes() {
		for _, late := range []bool{false, true} {
			transporttest.Fill(t, dst, 2)
			move(t, c, view(t, src, 3, n), view(t, dst, 5, n), wire.Tag(i), late)
			transporttest.Check(t, dst, 0, 5, 2, 0)
			transporttest.Check(t, dst, 5, n, 1, 3)
			transporttest.Check(t, dst, 5+n, most+9-5-n, 2, 5+n)
		}
	}
}

// move sends one view from the first rank to the second; if late is true, the receive is
// posted after the send.
func move(t *testing.T, c []*domain.Comm, from, to domain.View, tag wire.Tag, late bool) {
	t.Helper()
	begin := func() *domain.Request {
		r, err := c[1].Irecv(within(t), to, c[0].Rank(), tag)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var recv *domain.Request
	if !late {
		recv = begin()
	}
	send, err := c[0].Isend(within(t), from, c[1].Rank(), tag)
	if err != nil {
		t.Fatal(err)
	}
	if late {
		recv = begin()
	}
	if err := errors.Join(send.Wait(within(t)), recv.Wait(within(t))); err != nil {
		t.Fatalf("%d bytes: %v", uint64(from.Size()), err)
	}
}

// testTensor is the contract's first case: 1024 × 1024 float32, with the shape preserved.
func testTensor(t *testing.T, w commtest.Way) {
	job, c := pair(t, w, nil)
	const n = 1024 * 1024
	src, dst := host(t, job, 0, 4*n), host(t, job, 1, 4*n)
	transporttest.Fill(t, src, 7)
	together(t, 2, func(i int) error {
		if i == 0 {
			return c[0].Send(within(t), typed(t, src, 0, elem.Float32, n), 1, 9)
		}
		return c[1].Recv(within(t), typed(t, dst, 0, elem.Float32, n), 0, 9)
	})
	transporttest.Check(t, dst, 0, 4*n, 7, 0)
}

// testOrder sends small and large messages with few tags; messages with the same tag arrive in
// the order in which they were sent, those with different tags in the order of the receives.
func testOrder(t *testing.T, w commtest.Way) {
	job, c := pair(t, w, nil)
	const tags, each = 3, 20
	size := func(tag, i int) int { return 1 + (i*7919+tag*104729)%(2*domain.DefaultEager) }
	var sends []*domain.Request
	for i := range each {
		for tag := range tags {
			v := filled(t, job, 0, size(tag, i), uint64(tag*each+i))
			r, err := c[0].Isend(within(t), v, 1, wire.Tag(tag))
			if err != nil {
				t.Fatal(err)
			}
			sends = append(sends, r)
		}
	}
	for tag := tags - 1; tag >= 0; tag-- {
		for i := range each {
			v, check := empty(t, job, 1, size(tag, i))
			if err := c[1].Recv(within(t), v, 0, wire.Tag(tag)); err != nil {
				t.Fatalf("tag %d, message %d: %v", tag, i, err)
			}
			check(uint64(tag*each + i))
		}
	}
	for _, r := range sends {
		if err := r.Wait(within(t)); err != nil {
			t.Error(err)
		}
	}
}

// testAsync is the contract's fourth case, without its times.
func testAsync(t *testing.T, w commtest.Way) {
	job, c := pair(t, w, nil)
	n := large(64 << 20)
	src := filled(t, job, 0, n, 1)
	dst, check := empty(t, job, 1, n)
	send, err := c[0].Isend(within(t), src, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if done, _ := send.Test(); done {
		t.Error("complete, and nobody receives")
	}
	var late *domain.TimeoutError
	if err = send.Wait(shortly(t)); !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody receives: %v", err)
	}
	recv, err := c[1].Irecv(within(t), dst, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	var waiters sync.WaitGroup
	for _, r := range []*domain.Request{send, recv, send, recv} {
		waiters.Go(func() {
			if err := r.Wait(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
	waiters.Wait()
	for _, r := range []*domain.Request{send, recv} {
		if done, err := r.Test(); !done || err != nil {
			t.Error(done, err)
		}
	}
	check(1)
}

// testMulti is the contract's fifth case, without its times.
func testMulti(t *testing.T, w commtest.Way) {
	both(t, func(t *testing.T, tweak func(*domain.Options)) {
		t.Helper()
		job, c := pair(t, w, tweak)
		multi(t, job, c, 1, 4<<10, large(5<<20))
		many := make([]int, 1000)
		for i := range many {
			many[i] = 4 << 10
		}
		// More than fits into the window, too.
		for range 4 {
			multi(t, job, c, many...)
		}
		many = make([]int, domain.MaxViews)
		for i := range many {
			many[i] = i % 3
		}
		multi(t, job, c, many...)
	})
}

// multi sends views of several sizes, separate in memory, as one message.
func multi(t *testing.T, job *world, c []*domain.Comm, sizes ...int) {
	t.Helper()
	total := 0
	for _, n := range sizes {
		total += n + 1
	}
	src, dst := host(t, job, 0, total), host(t, job, 1, total+len(sizes))
	transporttest.Fill(t, src, 1)
	var from, to []domain.View
	at, offs := 0, []int{}
	for i, n := range sizes {
		from, to = append(from, view(t, src, at, n)), append(to, view(t, dst, at+i, n))
		offs = append(offs, at)
		at += n + 1
	}
	together(t, 2, func(i int) error {
		if i == 0 {
			return c[0].SendMulti(within(t), from, 1, 1)
		}
		return c[1].RecvMulti(within(t), to, 0, 1)
	})
	for i, n := range sizes {
		transporttest.Check(t, dst, offs[i]+i, n, 1, offs[i])
	}
}

// testGroup rotates large buffers in a ring in which every rank sends first; the rank itself
// is among the peers.
func testGroup(t *testing.T, w commtest.Way) {
	const ranks = 4
	n := large(1 << 20)
	job := open(t, w, ranks, noEager)
	c := job.form(t, "ring", all(ranks)...)
	src, dst := [ranks]*region.Buffer{}, [ranks]*region.Buffer{}
	for i := range ranks {
		src[i], dst[i] = host(t, job, i, n), host(t, job, i, ranks*n)
		transporttest.Fill(t, src[i], uint64(i))
	}
	together(t, ranks, func(i int) error {
		return c[i].Group(within(t), func(g *domain.Group) {
			for peer := range ranks {
				g.Send(view(t, src[i], 0, n), domain.Rank(peer), 1)
				g.Recv(view(t, dst[i], peer*n, n), domain.Rank(peer), 1)
			}
		})
	})
	for i := range ranks {
		for peer := range ranks {
			transporttest.Check(t, dst[i], peer*n, n, uint64(peer), 0)
		}
	}
	together(t, ranks, func(i int) error {
		right, left := domain.Rank((i+1)%ranks), domain.Rank((i+ranks-1)%ranks)
		return c[i].SendRecv(within(t), view(t, src[i], 0, n), right, view(t, dst[i], 0, n), left, 2)
	})
	for i := range ranks {
		transporttest.Check(t, dst[i], 0, n, uint64((i+ranks-1)%ranks), 0)
	}
}

// testPipeline is the contract's sixth case: 0 → 1 → 2, 16 batches, +1, ×2, -3.
func testPipeline(t *testing.T, w commtest.Way) {
	const stages, batches = 3, 16
	n := 1000
	job := open(t, w, stages, nil)
	c := job.form(t, "stages", all(stages)...)
	var bufs [stages]*region.Buffer
	for i := range stages {
		bufs[i] = host(t, job, i, n)
	}
	work := [stages]func(byte) byte{
		func(x byte) byte { return x + 1 }, func(x byte) byte { return x * 2 }, func(x byte) byte { return x - 3 },
	}
	together(t, stages, func(i int) error {
		data := bufs[i].Host(0, devices.Size(n))
		v := view(t, bufs[i], 0, n)
		for batch := range batches {
			if i == 0 {
				kit.FillAt(data, uint64(batch), 0)
			} else if err := c[i].Recv(within(t), v, domain.Rank(i-1), wire.Tag(batch)); err != nil {
				return err
			}
			for k := range data {
				data[k] = work[i](data[k])
			}
			if i < stages-1 {
				if err := c[i].Send(within(t), v, domain.Rank(i+1), wire.Tag(batch)); err != nil {
					return err
				}
				continue
			}
			for k, x := range kit.Bytes(uint64(batch), 0, n) {
				if want := (x+1)*2 - 3; data[k] != want {
					return fmt.Errorf("batch %d: element %d is %d, not %d", batch, k, data[k], want)
				}
			}
		}
		return nil
	})
}

// testRandom lets three ranks send each other messages of random sizes and
// tags, and receive them in another order of tags.
func testRandom(t *testing.T, w commtest.Way) {
	const ranks, tags = 3, 4
	each := 60
	if kit.Race() {
		each = 16
	}
	job := open(t, w, ranks, func(o *domain.Options) { o.Window = domain.MinWindow })
	c := job.form(t, "random", all(ranks)...)
	size := func(from, to, k int) int {
		return rand.New(rand.NewPCG(uint64(from*10+to), uint64(k))).IntN(3 * domain.DefaultEager)
	}
	seed := func(from, to, k int) uint64 { return uint64(from*100_000 + to*10_000 + k) }
	together(t, ranks, func(me int) error {
		var sends []*domain.Request
		for k := range each * ranks {
			to := k % ranks
			v := filled(t, job, me, size(me, to, k/ranks), seed(me, to, k/ranks))
			r, err := c[me].Isend(within(t), v, domain.Rank(to), wire.Tag(k/ranks%tags))
			if err != nil {
				return err
			}
			sends = append(sends, r)
		}
		receive := func(from, k int) error {
			v, check := empty(t, job, me, size(from, me, k))
			if err := c[me].Recv(within(t), v, domain.Rank(from), wire.Tag(k%tags)); err != nil {
				return fmt.Errorf("from %d, message %d: %w", from, k, err)
			}
			check(seed(from, me, k))
			return nil
		}
		for i := range each * ranks {
			// All messages of the first tag, then all of the next.
			k := i / ranks / (each / tags)
			k += i / ranks % (each / tags) * tags
			if err := receive(i%ranks, k); err != nil {
				return err
			}
		}
		var errs []error
		for _, r := range sends {
			errs = append(errs, r.Wait(within(t)))
		}
		return errors.Join(errs...)
	})
}
