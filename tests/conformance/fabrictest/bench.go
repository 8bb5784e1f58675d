package fabrictest

import (
	"context"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Bench measures two ranks: a barrier of counters, a message there and back, and streams in both
// directions at once.
func Bench(b *testing.B, open Open) {
	b.Helper()
	b.Run("Barrier", func(b *testing.B) { benchBarrier(b, open) })
	for _, size := range []int{8, 4096} {
		b.Run(fmt.Sprintf("PingPong%d", size), func(b *testing.B) { benchPingPong(b, open, size) })
	}
	b.Run("Both64MiB", func(b *testing.B) { benchBoth(b, open) })
}

func benchBarrier(b *testing.B, open Open) {
	b.Helper()
	w, ctx := open(b, 2), context.Background()
	if !w.Ranks[0].Mapped() {
		b.Skip("memory is not mapped")
	}
	w.each(b, func(f fabric.Fabric) error {
		s, peer := f.Signals(), 1-f.Rank()
		for i := range uint64(b.N) {
			s.Arrive(i + 1)
			if err := s.Await(ctx, peer, i+1); err != nil {
				return err
			}
		}
		return nil
	})
}

func benchPingPong(b *testing.B, open Open, size int) {
	b.Helper()
	w, ctx := open(b, 2), context.Background()
	b.ReportAllocs()
	b.ResetTimer()
	w.each(b, func(f fabric.Fabric) error {
		buf := make([]byte, 16+size)
		want := []fabric.Want{{Peer: 1 - f.Rank(), Receive: true}}
		for range b.N {
			if err := bounce(ctx, f, buf, want, f.Rank() == 0); err != nil {
				return err
			}
		}
		return nil
	})
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/way")
}

func benchBoth(b *testing.B, open Open) {
	b.Helper()
	w, ctx := open(b, 2), context.Background()
	const size = 64 << 20
	var out, in [2][]byte
	for i := range out {
		out[i], in[i] = kit.Bytes(uint64(i), 0, size), kit.Bytes(uint64(i), 0, size)
	}
	b.SetBytes(size)
	b.ResetTimer()
	w.each(b, func(f fabric.Fabric) error {
		for range b.N {
			if err := bothWays(ctx, f, 1-f.Rank(), out[f.Rank()], in[f.Rank()]); err != nil {
				return err
			}
		}
		return nil
	})
}

// bothWays sends and receives at the same time.
func bothWays(ctx context.Context, f fabric.Fabric, peer plan.Rank, out, in []byte) error {
	l := f.Link(peer)
	want := make([]fabric.Want, 1)
	for len(out)+len(in) > 0 {
		n, m, err := 0, 0, error(nil)
		if len(out) > 0 {
			n, err = l.TrySend(nil, out)
		}
		if err == nil && len(in) > 0 {
			m, err = l.TryReceive(in[:min(len(in), 1<<18)])
		}
		out, in = out[n:], in[m:]
		if want[0] = (fabric.Want{Peer: peer, Send: len(out) > 0, Receive: len(in) > 0}); err == nil && n+m == 0 {
			err = f.Park(ctx, want)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
