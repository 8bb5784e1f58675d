package fabric_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/commtest"
	"github.com/hmcfs/hmcfs/tests/conformance/fabrictest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

func loopback(testing.TB) control.Address {
	return control.Address{Network: control.TCP, Addr: "127.0.0.1:0"}
}

func socket(t testing.TB) control.Address {
	t.Helper()
	return control.Address{Network: control.Unix, Addr: filepath.Join(t.TempDir(), "s")}
}

// member is a rank of a job.
type member struct {
	engine  *transport.Engine
	comm    *comm.Communicator
	domains *domain.Domains
	domain  *domain.Comm
	fabric  fabric.Fabric
}

// way describes how the ranks of a test are connected.
type way struct {
	commtest.Way
	// options returns the options of a rank.
	options func(rank int) fabric.Options
}

// members makes n ranks and a domain of all of them.
func (w way) members(t testing.TB, n int) []*member {
	t.Helper()
	all := make([]*member, n)
	book := map[wire.Rank]control.Address{}
	var list []wire.Rank
	for i := range all {
		m := &member{}
		all[i] = m
		list = append(list, wire.Rank(i))
		var err error
		if m.engine, err = transport.New(transport.Options{}); err != nil {
			t.Fatal(err)
		}
		o := comm.Options{Rank: wire.Rank(i), Secret: kit.Bytes(1, 0, 32), Engine: m.engine}
		if w.Options != nil {
			w.Options(t, &o)
		}
		if m.comm, err = comm.New(o); err != nil {
			t.Fatal(err)
		}
		if m.domains, err = domain.New(m.comm, domain.Options{AddressBook: book}); err != nil {
			t.Fatal(err)
		}
		if book[wire.Rank(i)], err = m.comm.Listen(t.Context(), w.Address(t)); err != nil {
			t.Fatal(err)
		}
	}
	together(t, all, func(_ int, m *member) (err error) {
		m.domain, err = m.domains.NewComm(t.Context(), "job", list)
		return err
	})
	return all
}

// together runs fn for each rank concurrently.
func together(t testing.TB, all []*member, fn func(i int, m *member) error) {
	t.Helper()
	var ranks sync.WaitGroup
	for i, m := range all {
		ranks.Go(func() {
			if err := fn(i, m); err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		})
	}
	ranks.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// open implements fabrictest.Open.
func (w way) open(t testing.TB, n int) *fabrictest.World {
	t.Helper()
	all := w.members(t, n)
	t.Cleanup(func() {
		var errs []error
		for _, m := range all {
			errs = append(errs, m.domains.Close(), m.comm.Close(), m.engine.Close())
			if live := m.comm.Table().Stats().Live; live != 0 {
				t.Errorf("%d registrations are left", live)
			}
		}
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
	together(t, all, func(i int, m *member) (err error) {
		o := fabric.Options{Timeout: 20 * time.Second}
		if w.options != nil {
			o = w.options(i)
		}
		m.fabric, err = fabric.Over(t.Context(), m.domain, o)
		return err
	})
	t.Cleanup(func() {
		for _, m := range all {
			if err := m.fabric.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	world := &fabrictest.World{
		Allocates: w.Allocates,
		Alloc: func(t testing.TB, rank int, n devices.Size) *region.Buffer {
			t.Helper()
			b, err := all[rank].comm.Table().Alloc(n)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := b.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
			return b
		},
		Cut: func(t testing.TB, a, b int) {
			t.Helper()
			if err := fabric.Cut(all[a].fabric, plan.Rank(b)); err != nil {
				t.Fatal(err)
			}
		},
		Kill: func(t testing.TB, rank int) {
			t.Helper()
			if err := all[rank].comm.Close(); err != nil {
				t.Error(err)
			}
		},
	}
	for _, m := range all {
		world.Ranks = append(world.Ranks, m.fabric)
	}
	return world
}

// only restricts ranks to one transport.
func only(tr comm.Transport) func(testing.TB, *comm.Options) {
	return func(_ testing.TB, o *comm.Options) { o.Transports = []comm.Transport{tr} }
}

func shm() way { return way{Way: commtest.Way{Address: socket, Options: only(comm.SHM)}} }

func tcp() way { return way{Way: commtest.Way{Address: loopback, Options: only(comm.TCP)}} }

// plain uses tcp without encryption: links are then sockets instead of relays.
func plain() way {
	return way{Way: commtest.Way{Address: loopback, Options: func(t testing.TB, o *comm.Options) {
		t.Helper()
		only(comm.TCP)(t, o)
		o.Plain = true
	}}}
}

// mixed places two ranks on each host.
func mixed() way {
	w := shm()
	w.options = func(rank int) fabric.Options {
		return fabric.Options{Host: string(rune('a' + rank/2)), Timeout: 20 * time.Second}
	}
	return w
}

func TestSHM(t *testing.T) { fabrictest.Run(t, shm().open) }

func TestTCP(t *testing.T) { fabrictest.Run(t, tcp().open) }

func TestPlain(t *testing.T) { fabrictest.Run(t, plain().open) }

func TestMixed(t *testing.T) { fabrictest.Run(t, mixed().open) }

func TestTLS(t *testing.T) {
	certificates := commtest.TLS(t)
	w := tcp()
	w.Options = func(t testing.TB, o *comm.Options) {
		t.Helper()
		certificates(t, o)
	}
	w.Allocates = true
	fabrictest.Run(t, w.open)
}

// TestHalfClosedDoorbell: if a rank of the same host closes its side of the doorbell, the
// link is lost; the waiter must not poll until its timeout.
func TestHalfClosedDoorbell(t *testing.T) {
	kit.Check(t)
	ranks := mixed().open(t, 4).Ranks
	if err := fabric.Unhook(ranks[0], 1); err != nil {
		t.Fatal(err)
	}
	text := []byte("sent before")
	if n, err := ranks[0].Link(1).TrySend(nil, text); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got []byte
	p := make([]byte, 64)
	// Ranks 0 and 1 are on one host, rank 2 is on another.
	want := []fabric.Want{{Peer: 0, Receive: true}, {Peer: 2, Receive: true}}
	for looks := 0; ; looks++ {
		n, err := ranks[1].Link(0).TryReceive(p)
		if got = append(got, p[:n]...); errors.Is(err, fabric.ErrLink) {
			break
		}
		if looks == 100 {
			t.Fatalf("it was woken %d times for nothing", looks)
		}
		if err == nil {
			err = ranks[1].Park(ctx, want)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if string(got) != string(text) {
		t.Errorf("it got %q", got)
	}
	var all sync.WaitGroup
	for r, f := range ranks {
		all.Go(func() {
			if err := f.Reform(ctx); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	all.Wait()
	if n, err := ranks[0].Link(1).TrySend(nil, text); n != len(text) || err != nil {
		t.Errorf("after Reform: %d, %v", n, err)
	}
}

// TestLateFarewell closes ranks, which then receive the goodbyes of others: the packets
// were already in transit, and the seats no longer exist.
func TestLateFarewell(t *testing.T) {
	for name, w := range map[string]way{"shm": shm(), "tcp": tcp(), "mixed": mixed()} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t, kit.Ignore("/hmcfs-"))
			world := w.open(t, 3)
			for _, f := range world.Ranks {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
			for r, f := range world.Ranks {
				fabric.Hear(f, plan.Rank((r+1)%3))
			}
		})
	}
}

func BenchmarkSHM(b *testing.B) { fabrictest.Bench(b, shm().open) }

func BenchmarkTCP(b *testing.B) { fabrictest.Bench(b, tcp().open) }
