package ucx

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// patience is the time limit for events that must happen, however busy the
// machine is.
const patience = 30 * time.Second

// await returns the result that a completer received.
func await(t testing.TB, r result) error {
	t.Helper()
	select {
	case err := <-r:
		return err
	case <-time.After(patience):
		t.Fatal("an operation does not complete")
		return nil
	}
}

// underWay starts many operations of a kind that a peer can't complete soon, and
// returns when one of them is complete, so that the others are in their middle.
func underWay(t testing.TB, w window.Window, local *region.Buffer, kind wire.Kind) (done result, left int) {
	t.Helper()
	const many = 64
	done = make(result, many)
	for range many {
		w.Start(&window.Op{Kind: kind, Local: local, Size: local.Size()}, done)
	}
	if err := await(t, done); err != nil {
		t.Fatal(err)
	}
	return done, many - 1
}

// TestKilledPeer kills a peer in the middle of puts and gets.
func TestKilledPeer(t *testing.T) {
	for name, o := range variants() {
		if o.mayAbort() && !o.OneSided {
			continue // of the library's own puts only the target may
		}
		for _, kind := range []wire.Kind{wire.KindPut, wire.KindGet} {
			t.Run(name+"/"+kind.String(), func(t *testing.T) {
				kit.Check(t)
				killPeer(t, o, kind)
			})
		}
	}
}

func killPeer(t *testing.T, o Options, kind wire.Kind) {
	t.Helper()
	const size = 32 << 20
	s, p, w := meet(t, peerPlan{Options: o, Size: size})
	watches := s.watches()
	local := s.alloc(t, size)
	done, left := underWay(t, w, local, kind)
	p.kill()
	if !watches {
		s.Close() // as the session does that finds the peer gone, perhaps first
	}
	// Completed operations are restarted until one of them fails: however long
	// the signal takes, something is in progress then.
	failed := false
	for until := time.Now().Add(patience); left > 0; left-- {
		err := await(t, done)
		for err == nil && !failed && time.Now().Before(until) {
			w.Start(&window.Op{Kind: kind, Local: local, Size: size}, done)
			err = await(t, done)
		}
		failed = failed || err != nil
		if err != nil && !errors.Is(err, ErrPeer) && (watches || !errors.Is(err, devices.ErrClosed)) {
			t.Errorf("told %v", err)
		}
	}
	if !failed {
		t.Fatal("all operations end well")
	}
	<-s.Done()
	if err := s.Err(); !errors.Is(err, ErrPeer) && (watches || !errors.Is(err, devices.ErrClosed)) {
		t.Errorf("the provider ended with %v", err)
	}
	if err := move(w, window.Op{Kind: kind, Local: s.alloc(t, 1), Size: 1}); err == nil {
		t.Error("a dead peer answers")
	}
}

// TestKilledInitiator kills a peer in the middle of its puts and gets. Cases that
// may end the survivor, as the package's documentation says, are left out.
func TestKilledInitiator(t *testing.T) {
	for name, o := range variants() {
		if o.mayAbort() {
			continue
		}
		for _, kind := range []wire.Kind{wire.KindPut, wire.KindGet} {
			for _, n := range []int{64, 100_000, 8 << 20} {
				t.Run(fmt.Sprintf("%s/%v/%d", name, kind, n), func(t *testing.T) {
					kit.Check(t)
					killInitiator(t, o, kind, n)
				})
			}
		}
	}
}

func killInitiator(t *testing.T, o Options, kind wire.Kind, n int) {
	t.Helper()
	const size = 8 << 20
	s, p, _ := meet(t, peerPlan{Options: o, Size: size})
	e, err := s.Export(s.alloc(t, size), wire.Readable|wire.Writable)
	if err != nil {
		t.Fatal(err)
	}
	if a := p.tell(peerTold{Storm: e.Offer().Blob, Kind: kind, N: n}); a.Err != "" {
		t.Fatal(a.Err)
	}
	p.kill()
	if s.watches() {
		<-s.Done()
	}
	s.Close()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// mayAbort reports whether the library may end the process when its peer ends.
func (o Options) mayAbort() bool { return o.OneSided || o.Transports == "tcp" }

// watches reports whether the library itself detects a lost peer.
func (s *side) watches() (yes bool) {
	if s.do(func() error { yes = s.watched; return nil }) != nil {
		<-s.stopped
		yes = s.watched
	}
	return yes
}

// TestSilentPeer stops a peer in the middle of puts: waiters are notified when
// the provider is closed, and by the timeout.
func TestSilentPeer(t *testing.T) {
	for name, o := range variants() {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			const size = 32 << 20
			s, p, w := meet(t, peerPlan{Options: o, Size: size})
			done, left := underWay(t, w, s.alloc(t, size), wire.KindPut)
			if err := kit.StopProcess(p.cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
			s.Close()
			for range left {
				if err := await(t, done); err != nil && !errors.Is(err, devices.ErrClosed) {
					t.Errorf("told %v", err)
				}
			}
		})
	}
	t.Run("timeout", func(t *testing.T) {
		kit.Check(t)
		const size = 32 << 20
		s, p, w := meet(t, peerPlan{Size: size})
		if err := kit.StopProcess(p.cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.stall.timeout = 200 * time.Millisecond
		s.stall.timer = time.AfterFunc(s.stall.timeout/looks, s.look)
		s.mu.Unlock()
		if err := move(w, window.Op{Kind: wire.KindPut, Local: s.alloc(t, size), Size: size}); !errors.Is(err, ErrStalled) {
			t.Errorf("told %v", err)
		}
	})
}

// TestCloseWithMuchUnderWay closes an initiator, with the same exceptions as
// TestKilledInitiator.
func TestCloseWithMuchUnderWay(t *testing.T) {
	for name, o := range variants() {
		if o.mayAbort() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			const size = 8 << 20
			a, b := newPair(t, o)
			w := open(t, b, a, b.alloc(t, size))
			done, left := underWay(t, w, a.alloc(t, size), wire.KindPut)
			a.Close()
			for range left {
				if err := await(t, done); err != nil && !errors.Is(err, devices.ErrClosed) {
					t.Errorf("told %v", err)
				}
			}
			if _, err := a.Export(a.alloc(t, 10), wire.Readable); !errors.Is(err, devices.ErrClosed) {
				t.Errorf("exported by a closed provider: %v", err)
			}
			if err := a.Connect(b.Address()); !errors.Is(err, devices.ErrClosed) {
				t.Errorf("connected a closed provider: %v", err)
			}
		})
	}
}

// TestProcesses moves bytes both ways at once between two processes.
func TestProcesses(t *testing.T) {
	for name, o := range variants() {
		for _, own := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				kit.Check(t)
				const size, half = 8 << 20, 4 << 20
				s, p, w := meet(t, peerPlan{Options: o, Size: size, Own: own})
				local := s.alloc(t, size)
				for seed := uint64(1); seed < 6; seed++ {
					transporttest.Fill(t, local, seed)
					p.tell(peerTold{Fill: true, Off: half, N: half, Seed: seed + 10, At: half})
					const pieces, piece = 64, half / 64
					done := make(result, 2*pieces)
					for i := range pieces {
						w.Start(&window.Op{
							Kind: wire.KindPut, Local: local, LocalOff: devices.Offset(i * piece),
							RemoteOff: uint64(i * piece), Size: piece,
						}, done)
						w.Start(&window.Op{
							Kind: wire.KindGet, Local: local, LocalOff: devices.Offset(half + i*piece),
							RemoteOff: uint64(half + i*piece), Size: piece,
						}, done)
					}
					for range 2 * pieces {
						if err := await(t, done); err != nil {
							t.Fatal(err)
						}
					}
					p.check(0, half, seed, 0)
					transporttest.Check(t, local, half, half, seed+10, half)
				}
			})
		}
	}
}
