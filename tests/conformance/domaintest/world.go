package domaintest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/commtest"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// patience is the timeout for events that must happen, however busy the machine is.
const patience = 60 * time.Second

// node is one rank of a job.
type node struct {
	comm    *comm.Communicator
	domains *domain.Domains
}

// world holds the ranks of one job, all in this process.
type world struct {
	way   commtest.Way
	nodes []*node
	book  map[wire.Rank]control.Address
}

// open creates n ranks that listen, and closes them at the end of the test.
func open(t testing.TB, w commtest.Way, n int, tweak func(*domain.Options)) *world {
	t.Helper()
	job := &world{way: w, book: map[wire.Rank]control.Address{}}
	for i := range n {
		job.nodes = append(job.nodes, job.rank(t, wire.Rank(i), tweak))
	}
	return job
}

// rank creates one rank and records its address.
func (w *world) rank(t testing.TB, rank wire.Rank, tweak func(*domain.Options)) *node {
	t.Helper()
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := comm.Options{Rank: rank, Secret: kit.Bytes(1, 0, 32), Engine: e}
	if w.way.Options != nil {
		w.way.Options(t, &o)
	}
	c, err := comm.New(o)
	if err != nil {
		t.Fatal(err)
	}
	do := domain.Options{AddressBook: w.book, Grace: patience}
	if tweak != nil {
		tweak(&do)
	}
	d, err := domain.New(c, do)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cerr := errors.Join(d.Close(), c.Close(), e.Close()); cerr != nil {
			t.Error(cerr)
		}
		if live := c.Table().Stats().Live; live != 0 {
			t.Errorf("%s: %d registrations are left", rank, live)
		}
	})
	at, err := c.Listen(t.Context(), w.way.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	w.book[rank] = at
	return &node{c, d}
}

// all returns the ranks 0 to n-1.
func all(n int) []wire.Rank {
	var out []wire.Rank
	for i := range n {
		out = append(out, wire.Rank(i))
	}
	return out
}

// form forms a domain on all ranks of a list; the result is indexed by rank of the domain.
func (w *world) form(t testing.TB, name string, ranks ...wire.Rank) []*domain.Comm {
	t.Helper()
	out := make([]*domain.Comm, len(ranks))
	together(t, len(ranks), func(i int) (err error) {
		out[i], err = w.nodes[ranks[i]].domains.NewComm(within(t), name, slices.Clone(ranks))
		return err
	})
	if t.Failed() {
		t.FailNow()
	}
	return out
}

// pair returns a domain of ranks 0 and 1.
func pair(t testing.TB, w commtest.Way, tweak func(*domain.Options)) (*world, []*domain.Comm) {
	t.Helper()
	job := open(t, w, 2, tweak)
	return job, job.form(t, "pair", 0, 1)
}

// noEager makes every send wait for its receive.
func noEager(o *domain.Options) { o.NoEager = true }

// together runs fn for each of n ranks at the same time.
func together(t testing.TB, n int, fn func(i int) error) {
	t.Helper()
	var ranks sync.WaitGroup
	for i := range n {
		ranks.Go(func() {
			if err := fn(i); err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		})
	}
	ranks.Wait()
}

// within returns a context with the timeout patience.
func within(t testing.TB) context.Context {
	t.Helper()
	return kit.Context(t, patience)
}

// shortly returns a context with a short timeout.
func shortly(t testing.TB) context.Context {
	t.Helper()
	return kit.Context(t, 100*time.Millisecond)
}

// closing closes a buffer before its rank.
func closing(t testing.TB, b *region.Buffer, err error) *region.Buffer {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return b
}

// memory allocates n bytes of registered memory of a rank.
type memory func(t testing.TB, w *world, rank, n int) *region.Buffer

// host allocates host memory.
func host(t testing.TB, w *world, rank, n int) *region.Buffer {
	t.Helper()
	b, err := w.nodes[rank].comm.Table().Alloc(devices.Size(max(n, 1)))
	return closing(t, b, err)
}

// device allocates memory of a simulated device.
func device(t testing.TB, w *world, rank, n int) *region.Buffer {
	t.Helper()
	m := transporttest.Simulated(t, devices.Size(max(n, 1)), sim.Params{})
	b, err := w.nodes[rank].comm.Table().RegisterDevice(m.All())
	return closing(t, b, err)
}

// filled returns a view of a new buffer of host memory with the content of a seed.
func filled(t testing.TB, w *world, rank, n int, seed uint64) domain.View {
	t.Helper()
	b := host(t, w, rank, n)
	transporttest.FillPart(t, b, seed, n)
	return view(t, b, 0, n)
}

// empty returns a view of a new buffer of host memory for a message, and a function that
// checks the content received.
func empty(t testing.TB, w *world, rank, n int) (v domain.View, check func(seed uint64)) {
	t.Helper()
	b := host(t, w, rank, n)
	return view(t, b, 0, n), func(seed uint64) {
		t.Helper()
		transporttest.Check(t, b, 0, n, seed, 0)
	}
}

// view returns a view of n bytes of a buffer.
func view(t testing.TB, b *region.Buffer, off, n int) domain.View {
	t.Helper()
	return typed(t, b, off, elem.Uint8, n)
}

// typed returns a view of n elements of a buffer.
func typed(t testing.TB, b *region.Buffer, off int, typ elem.Type, n int) domain.View {
	t.Helper()
	v, err := domain.NewView(b, devices.Offset(off), typ, uint64(n))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// large returns a size in bytes, reduced under the race detector, which makes every byte slow.
func large(n int) int {
	if kit.Race() {
		return n / 5
	}
	return n
}
