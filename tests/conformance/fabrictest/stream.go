package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// seed returns the seed of the bytes from one rank to another.
func seed(from, to plan.Rank) uint64 { return uint64(from)<<8 | uint64(to) }

func testFacts(t *testing.T, open Open) {
	for _, n := range []int{1, 3} {
		w := open(t, n)
		for i, f := range w.Ranks {
			if f.Rank() != plan.Rank(i) || f.Size() != n || len(f.Nodes()) != n || f.Link(plan.Rank(i)) != nil {
				t.Errorf("rank %d of %d, nodes %v", f.Rank(), f.Size(), f.Nodes())
			}
			if (f.Signals() != nil) != f.Mapped() {
				t.Error("there are counters where memory is mapped, and only there")
			}
			for p := range n {
				if p != i && f.Link(plan.Rank(p)) != f.Link(plan.Rank(p)) {
					t.Error("another link the second time")
				}
			}
		}
	}
}

// testExchange lets all ranks send to all others concurrently, in odd pieces.
func testExchange(t *testing.T, open Open) {
	size := 3 << 20
	if kit.Race() {
		size /= 5
	}
	for _, n := range []int{2, 4} {
		w, ctx := open(t, n), within(t)
		w.each(t, func(f fabric.Fabric) error { return exchange(ctx, f, size) })
	}
}

// course tracks one rank's bytes to and from one peer.
type course struct {
	peer      plan.Rank
	out       []byte
	in        []byte
	got       int
	off, size int
}

// exchange sends size bytes to every rank and receives as many.
func exchange(ctx context.Context, f fabric.Fabric, size int) error {
	random := rand.New(rand.NewPCG(1, uint64(f.Rank())))
	var all []*course
	for p := range plan.Rank(f.Size()) {
		if p != f.Rank() {
			all = append(all, &course{peer: p, out: kit.Bytes(seed(f.Rank(), p), 0, size), in: make([]byte, size), size: size})
		}
	}
	for {
		moved, want := false, []fabric.Want(nil)
		for _, c := range all {
			m, err := c.step(f, random)
			if err != nil {
				return err
			}
			moved = moved || m
			if w := (fabric.Want{Peer: c.peer, Send: c.off < size, Receive: c.got < size}); w.Send || w.Receive {
				want = append(want, w)
			}
		}
		if want == nil {
			break
		}
		if moved {
			continue
		}
		if err := f.Park(ctx, want); err != nil {
			return err
		}
	}
	for _, c := range all {
		if at := kit.DiffAt(c.in, seed(c.peer, f.Rank()), 0); at >= 0 {
			return fmt.Errorf("byte %d from rank %d differs", at, c.peer)
		}
	}
	return nil
}

// step tries both directions with random lengths.
func (c *course) step(f fabric.Fabric, random *rand.Rand) (moved bool, err error) {
	l := f.Link(c.peer)
	if c.off < c.size {
		head := min(random.IntN(40), c.size-c.off)
		body := min(random.IntN(300_000), c.size-c.off-head)
		n, serr := l.TrySend(c.out[c.off:c.off+head], c.out[c.off+head:c.off+head+body])
		if serr != nil {
			return false, serr
		}
		c.off += n
		moved = n > 0
	}
	if c.got < c.size {
		n, rerr := l.TryReceive(c.in[c.got : c.got+min(1+random.IntN(200_000), c.size-c.got)])
		if rerr != nil {
			return false, rerr
		}
		c.got += n
		moved = moved || n > 0
	}
	return moved, nil
}

// testSizes sends messages of all lengths around the sizes of headers and rings.
func testSizes(t *testing.T, open Open) {
	w, ctx := open(t, 2), within(t)
	lengths := []int{0, 1, 15, 16, 17, 64, 4095, 4096, 4097, 65536, 1<<18 - 16, 1<<18 - 15, 1 << 18, 1<<18 + 1, 1 << 20}
	w.each(t, func(f fabric.Fabric) error {
		for i, n := range lengths {
			head, body := kit.Bytes(uint64(i), 0, 16), kit.Bytes(uint64(i), 16, n)
			if f.Rank() == 0 {
				if err := send(ctx, f, 1, head, body); err != nil {
					return err
				}
				continue
			}
			got := make([]byte, 16+n)
			if err := receive(ctx, f, 0, got); err != nil {
				return err
			}
			if at := kit.DiffAt(got, uint64(i), 0); at >= 0 {
				return fmt.Errorf("%d bytes: byte %d differs", n, at)
			}
		}
		return nil
	})
}

// testWakes lets one rank sleep until bytes arrive, and another until there is room.
func testWakes(t *testing.T, open Open) {
	w, ctx := open(t, 2), within(t)
	const rounds = 200
	w.each(t, func(f fabric.Fabric) error {
		peer := 1 - f.Rank()
		buf := make([]byte, 8)
		for i := range rounds {
			if i%20 == 0 && f.Rank() == 0 {
				idle(ctx, time.Millisecond)
			}
			var err error
			if f.Rank() == 0 {
				err = errors.Join(send(ctx, f, peer, buf, nil), receive(ctx, f, peer, buf))
			} else {
				err = errors.Join(receive(ctx, f, peer, buf), send(ctx, f, peer, buf, nil))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	const size = 8 << 20
	w.each(t, func(f fabric.Fabric) error {
		if f.Rank() == 0 {
			return send(ctx, f, 1, nil, make([]byte, size))
		}
		idle(ctx, 5*time.Millisecond)
		return receive(ctx, f, 0, make([]byte, size))
	})
}

// idle lets the others continue, and fall asleep.
func idle(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func testContext(t *testing.T, open Open) {
	w := open(t, 2)
	f := w.Ranks[0]
	want := []fabric.Want{{Peer: 1, Receive: true}}
	for ctx, err := shortly(t), error(nil); err == nil; {
		if err = f.Park(ctx, want); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	if s := f.Signals(); s != nil {
		if err := s.Await(shortly(t), 1, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
}

func testInterrupt(t *testing.T, open Open) {
	w, ctx := open(t, 2), within(t)
	f := w.Ranks[0]
	want := []fabric.Want{{Peer: 1, Receive: true}}
	f.Interrupt()
	if err := f.Park(ctx, want); err != nil {
		t.Error(err)
	}
	for range 3 {
		var done sync.WaitGroup
		done.Go(func() {
			if err := f.Park(ctx, want); err != nil {
				t.Error(err)
			}
		})
		idle(ctx, time.Millisecond)
		f.Interrupt()
		done.Wait()
	}
	s := f.Signals()
	if s == nil {
		return
	}
	f.Interrupt()
	if err := s.Await(ctx, 1, 1); !errors.Is(err, fabric.ErrInterrupted) {
		t.Error(err)
	}
	f.Interrupt()
	if err := f.Reform(ctx); !errors.Is(err, fabric.ErrInterrupted) {
		t.Error(err)
	}
}

// testAllocations bounces a message, and checks that a step allocates no memory.
func testAllocations(t *testing.T, open Open) {
	if kit.Race() {
		t.Skip("the race detector takes memory")
	}
	w, ctx := open(t, 2), within(t)
	if w.Allocates {
		t.Skip("messages may take memory")
	}
	const rounds = 100
	var peer sync.WaitGroup
	peer.Go(func() {
		buf := make([]byte, 64)
		want := []fabric.Want{{Peer: 0, Receive: true}}
		for range rounds + 1 {
			if err := bounce(ctx, w.Ranks[1], buf, want, false); err != nil {
				t.Error(err)
				return
			}
		}
	})
	buf := make([]byte, 64)
	want := []fabric.Want{{Peer: 1, Receive: true}}
	per := testing.AllocsPerRun(rounds, func() {
		if err := bounce(ctx, w.Ranks[0], buf, want, true); err != nil {
			t.Error(err)
		}
	})
	peer.Wait()
	if per != 0 {
		t.Errorf("%v allocations for a message there and back", per)
	}
}

// bounce sends a message and receives one, or the reverse.
func bounce(ctx context.Context, f fabric.Fabric, buf []byte, want []fabric.Want, first bool) error {
	l := f.Link(want[0].Peer)
	if first {
		if n, err := l.TrySend(buf[:16], buf[16:]); n != len(buf) || err != nil {
			return fmt.Errorf("sent %d: %w", n, err)
		}
	}
	for got := 0; got < len(buf); {
		n, err := l.TryReceive(buf[got:])
		if got += n; err == nil && n == 0 {
			err = f.Park(ctx, want)
		}
		if err != nil {
			return err
		}
	}
	if first {
		return nil
	}
	n, err := l.TrySend(buf[:16], buf[16:])
	if n != len(buf) {
		return errors.Join(err, fmt.Errorf("sent %d", n))
	}
	return err
}
