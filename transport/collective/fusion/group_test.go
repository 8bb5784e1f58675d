package fusion_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/fusion"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// each runs do as each of n ranks.
func each(t testing.TB, n int, do func(r int) error) {
	t.Helper()
	var group sync.WaitGroup
	for r := range n {
		group.Go(func() {
			if err := do(r); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// groups makes a group over some fabrics.
func groups(t testing.TB, all []fabric.Fabric, o collective.Options) []*collective.Group {
	t.Helper()
	out := make([]*collective.Group, len(all))
	each(t, len(all), func(r int) (err error) {
		out[r], err = collective.New(context.Background(), all[r], o)
		return err
	})
	t.Cleanup(func() {
		for r, g := range out {
			if err := errors.Join(g.Close(), all[r].Close()); err != nil {
				t.Error(err)
			}
		}
	})
	return out
}

// overTCP connects two ranks by sockets.
func overTCP(t testing.TB) []fabric.Fabric {
	t.Helper()
	book := map[wire.Rank]control.Address{}
	domains := make([]*domain.Domains, 2)
	for r := range domains {
		e, err := transport.New(transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := comm.New(comm.Options{Rank: wire.Rank(r), Secret: kit.Bytes(1, 0, 32), Engine: e})
		if err != nil {
			t.Fatal(err)
		}
		if domains[r], err = domain.New(c, domain.Options{AddressBook: book}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closed(t, domains[r].Close(), c.Close(), e.Close()) })
		if book[wire.Rank(r)], err = c.Listen(context.Background(), control.Address{Network: control.TCP, Addr: "127.0.0.1:0"}); err != nil {
			t.Fatal(err)
		}
	}
	all := make([]fabric.Fabric, 2)
	each(t, 2, func(r int) error {
		d, err := domains[r].NewComm(context.Background(), "job", []wire.Rank{0, 1})
		if err != nil {
			return err
		}
		all[r], err = fabric.Over(context.Background(), d, fabric.Options{Streams: true})
		return err
	})
	return all
}

// closed checks the errors of closing.
func closed(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// floats makes tensors of float32 whose sum depends on the order of the terms.
func (m memory) floats(rank int, counts []uint64) []domain.View {
	m.t.Helper()
	rng := rand.New(rand.NewPCG(7, uint64(rank)))
	var out []domain.View
	for _, n := range counts {
		b, err := m.table.Register(make([]byte, 4*n))
		if err != nil {
			m.t.Fatal(err)
		}
		m.t.Cleanup(func() { m.close(b) })
		v, err := domain.All(b, elem.Float32)
		if err != nil {
			m.t.Fatal(err)
		}
		for i := range n {
			x := (rng.Float32() - 0.5) * float32(math.Pow(10, float64(rng.IntN(16)-8)))
			put(host(v)[4*i:], math.Float32bits(x))
		}
		out = append(out, v)
	}
	return out
}

// TestStrict reduces tensors fused in buckets of several sizes, and unfused: in a strict
// group the bits are the same.
func TestStrict(t *testing.T) {
	kit.Check(t)
	const n = 4
	m := newMemory(t)
	fabrics, err := fabric.Local(n)
	if err != nil {
		t.Fatal(err)
	}
	all := groups(t, fabrics, collective.Options{Strict: true})
	counts := []uint64{1, 1000, 33, 4097, 70_000, 5, 64, 12_345}
	want := make([][]byte, len(counts))
	tensors := make([][]domain.View, n)
	each(t, n, func(r int) error {
		tensors[r] = m.floats(r, counts)
		for _, v := range tensors[r] {
			if err := all[r].AllReduce(t.Context(), v, v, elem.Sum); err != nil {
				return err
			}
		}
		return nil
	})
	for i, v := range tensors[0] {
		want[i] = bytes.Clone(host(v))
	}
	for _, bucket := range []devices.Size{1 << 10, 20 << 10, 1 << 20} {
		each(t, n, func(r int) error {
			mine := m.floats(r, counts)
			if err := reduceFused(all[r], m, mine, bucket); err != nil {
				return err
			}
			for i, v := range mine {
				if !bytes.Equal(host(v), want[i]) {
					t.Errorf("buckets of %v: rank %d, tensor %d has other bits", bucket, r, i)
				}
			}
			return nil
		})
	}
}

// reduceFused reduces tensors in buckets.
func reduceFused(g *collective.Group, m memory, tensors []domain.View, bucket devices.Size) error {
	ctx := context.Background()
	f, err := fusion.New(ctx, g, m.table, fusion.Options{Type: elem.Float32, Bytes: bucket})
	if err != nil {
		return err
	}
	for _, v := range tensors {
		if _, err := f.Add(v); err != nil {
			return errors.Join(err, f.Close(ctx))
		}
	}
	return f.Close(ctx)
}

// BenchmarkGradients reduces 1000 gradients of 16 KiB over TCP, one by one and
// fused.
func BenchmarkGradients(b *testing.B) {
	counts := make([]uint64, 1000)
	for i := range counts {
		counts[i] = 4 << 10
	}
	b.Run("unfused", func(b *testing.B) {
		m := newMemory(b)
		all := groups(b, overTCP(b), collective.Options{})
		benchmark(b, [][]domain.View{m.floats(0, counts), m.floats(1, counts)}, func(r int, v domain.View) error {
			return all[r].AllReduce(b.Context(), v, v, elem.Max)
		}, func(int) error { return nil })
	})
	b.Run("fused", func(b *testing.B) {
		m := newMemory(b)
		all := groups(b, overTCP(b), collective.Options{})
		var fusers [2]*fusion.Fuser
		each(b, 2, func(r int) (err error) {
			fusers[r], err = fusion.New(b.Context(), all[r], m.table, fusion.Options{Type: elem.Float32, Op: elem.Max})
			return err
		})
		benchmark(b, [][]domain.View{m.floats(0, counts), m.floats(1, counts)}, func(r int, v domain.View) error {
			_, err := fusers[r].Add(v)
			return err
		}, func(r int) error { return fusers[r].Flush(b.Context()) })
		each(b, 2, func(r int) error { return fusers[r].Close(b.Context()) })
	})
}

// benchmark calls do for all tensors of each rank, and then end.
func benchmark(b *testing.B, tensors [][]domain.View, do func(r int, v domain.View) error, end func(r int) error) {
	b.Helper()
	b.ReportAllocs()
	b.SetBytes(int64(tensors[0][0].Size()) * int64(len(tensors[0])))
	b.ResetTimer()
	each(b, 2, func(r int) error {
		for range b.N {
			for _, v := range tensors[r] {
				if err := do(r, v); err != nil {
					return err
				}
			}
			if err := end(r); err != nil {
				return err
			}
		}
		return nil
	})
	b.StopTimer()
}
