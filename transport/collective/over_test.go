package collective

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// sharedFabrics connects n ranks by shared memory.
func sharedFabrics(t testing.TB, n int) []fabric.Fabric {
	t.Helper()
	return overDomain(t, n, fabric.Options{})
}

// socketFabrics connects n ranks by sockets.
func socketFabrics(t testing.TB, n int) []fabric.Fabric {
	t.Helper()
	return overDomain(t, n, fabric.Options{Streams: true})
}

// overDomain connects n ranks by a domain of communicators.
func overDomain(t testing.TB, n int, o fabric.Options) []fabric.Fabric {
	t.Helper()
	all, err := overDomainBy(t, n, o, func(_ wire.Rank, at control.Address) control.Address { return at })()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// overDomainBy is overDomain with addresses that differ from those on which the ranks
// listen. The function that it returns connects the ranks.
func overDomainBy(
	t testing.TB, n int, o fabric.Options, by func(wire.Rank, control.Address) control.Address,
) (join func() ([]fabric.Fabric, error)) {
	t.Helper()
	book := map[wire.Rank]control.Address{}
	var list []wire.Rank
	domains := make([]*domain.Domains, n)
	for i := range n {
		rank := wire.Rank(i)
		var c *comm.Communicator
		c, domains[i] = newDomains(t, rank, book)
		at := control.Address{Network: control.Unix, Addr: filepath.Join(t.TempDir(), "s")}
		if o.Streams {
			at = control.Address{Network: control.TCP, Addr: "127.0.0.1:0"}
		}
		at, err := c.Listen(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		book[rank] = by(rank, at)
		list = append(list, rank)
	}
	return func() ([]fabric.Fabric, error) {
		all := make([]fabric.Fabric, n)
		t.Cleanup(func() {
			for _, f := range all {
				if f == nil {
					continue
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
		})
		return all, together(n, func(r int) error {
			d, err := domains[r].NewComm(t.Context(), "job", list)
			if err != nil {
				return err
			}
			all[r], err = fabric.Over(t.Context(), d, o)
			return err
		})
	}
}

// newDomains makes a rank.
func newDomains(t testing.TB, rank wire.Rank, book map[wire.Rank]control.Address) (*comm.Communicator, *domain.Domains) {
	t.Helper()
	engine, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := comm.New(comm.Options{Rank: rank, Secret: kit.Bytes(1, 0, 32), Engine: engine})
	if err != nil {
		t.Fatal(err)
	}
	d, err := domain.New(c, domain.Options{AddressBook: book})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), c.Close(), engine.Close()); err != nil {
			t.Error(err)
		}
	})
	return c, d
}

// TestOver runs all tests between ranks of a domain: in shared memory, and over sockets.
func TestOver(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3, 4} {
		for _, streams := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/streams=%v", n, streams), func(t *testing.T) {
				t.Parallel()
				all := overDomain(t, n, fabric.Options{Streams: streams})
				w := groupsOf(t, all, Options{})
				tasks(n, []uint64{1, 1001, 300_007}, func(x plan.Task) {
					for _, shared := range []bool{false, !streams} {
						if err := w.try(trial{task: x, shared: shared}, w.buffer, x.Count); err != nil {
							t.Errorf("%+v, shared %v: %v", x, shared, err)
						}
					}
				})
				for range 100 {
					if err := together(n, func(r int) error { return w.groups[r].Barrier(t.Context()) }); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkOver sums fp32 between two ranks of a domain.
func BenchmarkOver(b *testing.B) {
	for _, streams := range []bool{false, true} {
		for _, size := range []uint64{8, 4096, 1 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("streams=%v/%d", streams, size), func(b *testing.B) {
				w := groupsOf(b, overDomain(b, 2, fabric.Options{Streams: streams}), Options{})
				w.bench(b, size, !streams)
			})
		}
	}
}

// bench sums fp32 in place.
func (w *ranks) bench(b *testing.B, size uint64, shared bool) {
	b.Helper()
	buffers := w.mine(2, size)
	do := func(times int) {
		err := together(2, func(r int) error {
			v := view(b, buffers[r], elem.Float32, 0, size/4)
			for range times {
				if err := w.groups[r].AllReduce(b.Context(), v, v, elem.Sum); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if shared {
		if err := together(2, func(r int) error { _, err := w.groups[r].Share(b.Context(), buffers[r]); return err }); err != nil {
			b.Fatal(err)
		}
	}
	do(3)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	do(b.N)
}
