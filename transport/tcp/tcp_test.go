package tcp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const both = wire.Readable | wire.Writable

// memories calls fn with every kind of memory at every end.
func memories(t *testing.T, fn func(t *testing.T, make func(s *side, n devices.Size) *region.Buffer, other func(s *side, n devices.Size) *region.Buffer)) {
	t.Helper()
	kinds := map[string]func(t *testing.T) func(s *side, n devices.Size) *region.Buffer{
		"host": func(t *testing.T) func(s *side, n devices.Size) *region.Buffer {
			return func(s *side, n devices.Size) *region.Buffer { return s.host(t, n) }
		},
		"sim": func(t *testing.T) func(s *side, n devices.Size) *region.Buffer {
			return func(s *side, n devices.Size) *region.Buffer { return s.sim(t, n, sim.Params{}) }
		},
		"mapped": func(t *testing.T) func(s *side, n devices.Size) *region.Buffer {
			return func(s *side, n devices.Size) *region.Buffer { return s.sim(t, n, sim.Params{Mapped: true}) }
		},
	}
	for local, a := range kinds {
		for remote, b := range kinds {
			t.Run(local+" "+remote, func(t *testing.T) { fn(t, a(t), b(t)) })
		}
	}
}

func TestPutAndGet(t *testing.T) {
	memories(t, func(t *testing.T, mine, theirs func(s *side, n devices.Size) *region.Buffer) {
		kit.Check(t)
		a, b := sides(t, "unix", Options{InFlight: 4})
		const size = 10*testChunk + 77
		local, remote := mine(a, size), theirs(b, size)
		d := b.grant(t, remote, both)
		transporttest.Fill(t, local, 1)
		for _, n := range []int{1, 7, maxSmall, maxSmall + 1, testChunk - 1, testChunk, testChunk + 1, size - 100} {
			transporttest.Fill(t, remote, 2)
			if err := a.do(t, Plan{Kind: wire.KindPut, Local: local, LocalOff: 33, Key: d.Key, RemoteOff: 50, Size: devices.Size(n)}); err != nil {
				t.Fatal(err)
			}
			transporttest.Check(t, remote, 0, 50, 2, 0)
			transporttest.Check(t, remote, 50, n, 1, 33)
			transporttest.Check(t, remote, 50+n, size-50-n, 2, 50+n)
			transporttest.Fill(t, remote, uint64(n))
			transporttest.Fill(t, local, 1)
			if err := a.do(t, Plan{Kind: wire.KindGet, Local: local, LocalOff: 11, Key: d.Key, RemoteOff: 60, Size: devices.Size(n)}); err != nil {
				t.Fatal(err)
			}
			transporttest.Check(t, local, 0, 11, 1, 0)
			transporttest.Check(t, local, 11, n, uint64(n), 60)
			transporttest.Check(t, local, 11+n, size-11-n, 1, 11+n)
			transporttest.Fill(t, local, 1)
		}
	})
}

func TestRefusals(t *testing.T) {
	memories(t, func(t *testing.T, mine, theirs func(s *side, n devices.Size) *region.Buffer) {
		kit.Check(t)
		a, b := sides(t, "tcp", Options{})
		const size = 3 * testChunk
		local, remote := mine(a, size), theirs(b, size)
		full, reading, writing := b.grant(t, remote, both), b.grant(t, remote, wire.Readable), b.grant(t, remote, wire.Writable)
		transporttest.Fill(t, remote, 5)
		transporttest.Fill(t, local, 6)
		for name, tc := range map[string]struct {
			p    Plan
			want error
		}{
			"wrong key":           {Plan{Kind: wire.KindPut, Key: full.Key + 1, Size: size}, region.ErrKey},
			"no key":              {Plan{Kind: wire.KindGet, Size: 1}, region.ErrKey},
			"write a read key":    {Plan{Kind: wire.KindPut, Key: reading.Key, Size: 2 * testChunk}, region.ErrRights},
			"read a write key":    {Plan{Kind: wire.KindGet, Key: writing.Key, Size: 1}, region.ErrRights},
			"put behind the end":  {Plan{Kind: wire.KindPut, Key: full.Key, RemoteOff: size - 1, Size: 2}, devices.ErrRange},
			"get behind the end":  {Plan{Kind: wire.KindGet, Key: full.Key, RemoteOff: size, Size: 1}, devices.ErrRange},
			"put, wrapped":        {Plan{Kind: wire.KindPut, Key: full.Key, RemoteOff: 1<<64 - 1, Size: 2}, devices.ErrRange},
			"get, wrapped":        {Plan{Kind: wire.KindGet, Key: full.Key, RemoteOff: 1<<64 - 10, Size: 100}, devices.ErrRange},
			"local, behind":       {Plan{Kind: wire.KindPut, Key: full.Key, LocalOff: size - 1, Size: 2}, devices.ErrRange},
			"local, wrapped":      {Plan{Kind: wire.KindGet, Key: full.Key, LocalOff: 1<<64 - 1, Size: 2}, devices.ErrRange},
			"local, size wrapped": {Plan{Kind: wire.KindPut, Key: full.Key, LocalOff: 1, Size: 1<<64 - 1}, devices.ErrRange},
		} {
			tc.p.Local = local
			if err := a.do(t, tc.p); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		transporttest.Check(t, remote, 0, size, 5, 0)
		transporttest.Check(t, local, 0, size, 6, 0)
		if err := b.keys.Revoke(t.Context(), full.Key); err != nil {
			t.Fatal(err)
		}
		if err := a.do(t, Plan{Kind: wire.KindPut, Local: local, Key: full.Key, Size: 10}); !errors.Is(err, region.ErrKey) {
			t.Errorf("a revoked key: %v", err)
		}
		transporttest.Check(t, remote, 0, size, 5, 0)
		if err := a.do(t, Plan{Kind: wire.KindPut, Local: local, Key: writing.Key, Size: size}); err != nil {
			t.Errorf("after all that: %v", err)
		}
		transporttest.Check(t, remote, 0, size, 6, 0)
	})
}

// Both ends put, get and answer at the same time, more than any buffer holds: no
// deadlock occurs, and every byte is in its place.
func TestBothDirectionsAtOnce(t *testing.T) {
	memories(t, func(t *testing.T, mine, theirs func(s *side, n devices.Size) *region.Buffer) {
		kit.Check(t)
		a, b := sides(t, "unix", Options{InFlight: 8})
		const part, parts = 5*testChunk + 3, 4
		var all sync.WaitGroup
		for i, s := range []*side{a, b} {
			peer, make, there := b, mine, theirs
			if s == b {
				peer, make, there = a, theirs, mine
			}
			local, remote := make(s, part*parts), there(peer, part*parts)
			back := make(s, part*parts)
			d := peer.grant(t, remote, both)
			seed := uint64(10 + i)
			transporttest.Fill(t, local, seed)
			for k := range parts {
				off := k * part
				all.Go(func() {
					for range 3 {
						if err := s.do(t, Plan{Kind: wire.KindPut, Local: local, LocalOff: devices.Offset(off), Key: d.Key, RemoteOff: uint64(off), Size: part}); err != nil {
							t.Error(err)
						}
						if err := s.do(t, Plan{Kind: wire.KindGet, Local: back, LocalOff: devices.Offset(off), Key: d.Key, RemoteOff: uint64(off), Size: part}); err != nil {
							t.Error(err)
						}
					}
				})
			}
			defer func() {
				transporttest.Check(t, remote, 0, part*parts, seed, 0)
				transporttest.Check(t, back, 0, part*parts, seed, 0)
			}()
		}
		all.Wait()
	})
}

// Many small transfers of random places, some by several posters.
func TestRandomSmall(t *testing.T) {
	kit.Check(t)
	a, b := sides(t, "unix", Options{})
	const size, posters = 1 << 20, 4
	local, remote := a.host(t, size), b.host(t, size)
	d := b.grant(t, remote, both)
	transporttest.Fill(t, local, 1)
	var all sync.WaitGroup
	for p := range posters {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(p)))
			for range 2000 {
				n := 1 + random.IntN(20_000)
				off := p*size/posters + random.IntN(size/posters-n)
				if err := a.do(t, Plan{Kind: wire.KindPut, Local: local, LocalOff: devices.Offset(off), Key: d.Key, RemoteOff: uint64(off), Size: devices.Size(n)}); err != nil {
					t.Error(err)
					return
				}
				transporttest.Check(t, remote, off, n, 1, off)
			}
		})
	}
	all.Wait()
}

func TestEndOfAChannel(t *testing.T) {
	for name, end := range map[string]func(a, b *side){
		"ours":   func(a, _ *side) { a.channel.Close() },
		"theirs": func(_, b *side) { b.channel.Close() },
		"cut":    func(a, _ *side) { _ = a.channel.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			a, b := sides(t, "unix", Options{InFlight: 2})
			const size = 64 << 20
			local, remote := a.host(t, size), b.host(t, size)
			d := b.grant(t, remote, both)
			var transfers [4]Transfer
			var waiters [4]waiter
			for i := range transfers {
				waiters[i] = newWaiter()
				kind := wire.KindPut
				if i%2 == 1 {
					kind = wire.KindGet
				}
				if err := transfers[i].Start(Plan{Kind: kind, Local: local, Key: d.Key, Size: size}, waiters[i]); err != nil {
					t.Fatal(err)
				}
				a.channel.Post(&transfers[i])
			}
			kit.Eventually(t, patience, func() bool { return b.channel.moved.Load() > 10 })
			end(a, b)
			for i, w := range waiters {
				if err := w.wait(t); !errors.Is(err, control.ErrDisconnected) {
					t.Errorf("transfer %d: %v", i, err)
				}
			}
			<-a.channel.Done()
			<-b.channel.Done()
			if err := a.do(t, Plan{Kind: wire.KindPut, Local: local, Key: d.Key, Size: 1}); !errors.Is(err, control.ErrDisconnected) {
				t.Errorf("after the end: %v", err)
			}
			if err := local.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A small transfer does not wait for all of a large one that was there first.
func TestTransfersTakeTurns(t *testing.T) {
	kit.Check(t)
	a, b := sides(t, "unix", Options{InFlight: 2})
	const size = 64 << 20
	local, remote := a.host(t, size), b.host(t, size)
	d := b.grant(t, remote, both)
	var large, small Transfer
	last, first := newWaiter(), newWaiter()
	for _, one := range []struct {
		t *Transfer
		w waiter
		n devices.Size
	}{{&large, last, size}, {&small, first, testChunk}} {
		if err := one.t.Start(Plan{Kind: wire.KindPut, Local: local, Key: d.Key, Size: one.n}, one.w); err != nil {
			t.Fatal(err)
		}
		a.channel.Post(one.t)
	}
	if err := first.wait(t); err != nil {
		t.Fatal(err)
	}
	if len(last) != 0 {
		t.Error("the large one is complete already")
	}
	if err := last.wait(t); err != nil {
		t.Error(err)
	}
}

// The peer has closed before the channel starts.
func TestPeerGoneAtOnce(t *testing.T) {
	kit.Check(t)
	for range 200 {
		ca, cb := sockets(t, "unix")
		_ = cb.Close()
		newSide(t, ca, Options{}).channel.Close()
	}
}

// A device that fails fails the operation, not the channel.
func TestDeviceFailure(t *testing.T) {
	kit.Check(t)
	a, b := sides(t, "unix", Options{})
	const size = 2 * testChunk
	local, remote := a.host(t, size), b.sim(t, size, sim.Params{})
	mine := a.sim(t, size, sim.Params{})
	sound := b.host(t, size)
	d, good := b.grant(t, remote, both), b.grant(t, sound, both)
	b.crash(t, remote)
	a.crash(t, mine)
	for _, kind := range []wire.Kind{wire.KindPut, wire.KindGet} {
		if err := a.do(t, Plan{Kind: kind, Local: local, Key: d.Key, Size: size}); !errors.Is(err, devices.ErrDevice) {
			t.Errorf("%s, their device is lost: %v", kind, err)
		}
		if err := a.do(t, Plan{Kind: kind, Local: mine, Key: good.Key, Size: size}); !errors.Is(err, devices.ErrLost) {
			t.Errorf("%s, our device is lost: %v", kind, err)
		}
		if err := a.do(t, Plan{Kind: kind, Local: local, Key: good.Key, Size: size}); err != nil {
			t.Errorf("%s, afterwards: %v", kind, err)
		}
	}
}

func TestAllocatesNothing(t *testing.T) {
	if kit.Race() {
		t.Skip("the race detector allocates")
	}
	a, b := sides(t, "tcp", Options{})
	const size = 4 * testChunk
	local, remote := a.host(t, size), b.host(t, size)
	d := b.grant(t, remote, both)
	var tr Transfer
	w := newWaiter()
	for _, kind := range []wire.Kind{wire.KindPut, wire.KindGet} {
		for _, n := range []devices.Size{8, maxSmall + 1, size} {
			p := Plan{Kind: kind, Local: local, Key: d.Key, Size: n}
			if got := testing.AllocsPerRun(200, func() {
				if err := tr.Start(p, w); err != nil {
					t.Error(err)
				}
				a.channel.Post(&tr)
				if err := <-w; err != nil {
					t.Error(err)
				}
			}); got != 0 {
				t.Errorf("%s of %d bytes: %v allocations", kind, n, got)
			}
		}
	}
}

func TestOptions(t *testing.T) {
	for i, o := range []Options{{}, {InFlight: -1}, {InFlight: MaxInFlight + 1}, {Timeout: -1}} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			kit.Check(t)
			a, b := sockets(t, "unix")
			defer func() { _ = b.Close() }()
			if _, err := New(&control.Conn{Conn: a, Chunk: testChunk}, o); err == nil {
				t.Error("taken")
			}
		})
	}
}
