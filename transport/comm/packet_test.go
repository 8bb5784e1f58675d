package comm_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// recorder keeps the calls that a port received.
type recorder struct {
	mu      sync.Mutex
	packets []string
	from    comm.Origin
	ended   []comm.Origin
	cause   error
	refuse  error
}

func (r *recorder) Packet(from comm.Origin, p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from, r.packets = from, append(r.packets, string(p))
	return r.refuse
}

func (r *recorder) Ended(from comm.Origin, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.cause = append(r.ended, from), cause
}

// heard waits until n packets and ends have been received.
func (r *recorder) heard(t *testing.T, packets, ends int) {
	t.Helper()
	kit.Eventually(t, 30*time.Second, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.packets) == packets && len(r.ended) == ends
	})
}

// newRank is a rank that listens, and its address.
func newRank(t *testing.T, rank wire.Rank) (*comm.Communicator, control.Address) {
	t.Helper()
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := comm.New(comm.Options{Rank: rank, Secret: kit.Bytes(1, 0, 32), Engine: e})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cerr := errors.Join(c.Close(), e.Close()); cerr != nil {
			t.Error(cerr)
		}
	})
	at, err := c.Listen(t.Context(), socket(t))
	if err != nil {
		t.Fatal(err)
	}
	return c, at
}

func TestPortsAndEnds(t *testing.T) {
	kit.Check(t)
	a, at := newRank(t, 0)
	b, _ := newRank(t, 1)
	var at0, at1 recorder
	if err := errors.Join(a.Handle(1, &at0), b.Handle(1, &at1)); err != nil {
		t.Fatal(err)
	}
	if err := a.Handle(1, &at0); !errors.Is(err, comm.ErrPort) {
		t.Errorf("taken: %v", err)
	}
	if err := a.SendPacket(t.Context(), 1, 1, nil); !errors.Is(err, comm.ErrNotConnected) {
		t.Errorf("nobody there: %v", err)
	}
	if _, err := a.TryPacket(1, 1, nil); !errors.Is(err, comm.ErrNotConnected) {
		t.Errorf("nobody there: %v", err)
	}
	for round := range 2 {
		if err := b.Connect(t.Context(), 0, at); err != nil {
			t.Fatal(err)
		}
		// Port 2 has no handler: nothing happens.
		if err := errors.Join(
			b.SendPacket(t.Context(), 0, 2, []byte("dropped")), b.SendPacket(t.Context(), 0, 1, []byte("a"), []byte("b")),
		); err != nil {
			t.Fatal(err)
		}
		at0.heard(t, round+1, round)
		if sent, err := a.TryPacket(1, 1, []byte("c")); !sent || err != nil {
			t.Fatal(sent, err)
		}
		at1.heard(t, round+1, round)
		origin, err := a.Origin(t.Context(), 1)
		if err != nil || origin != at0.from || at0.from.Session != at1.from.Session || at0.packets[round] != "ab" {
			t.Errorf("%+v, %+v, %+v, %q: %v", origin, at0.from, at1.from, at0.packets, err)
		}
		if err := b.Disconnect(0); err != nil {
			t.Fatal(err)
		}
		at0.heard(t, round+1, round+1)
		at1.heard(t, round+1, round+1)
		if at0.ended[round] != at0.from || !errors.Is(at0.cause, control.ErrDisconnected) {
			t.Errorf("ended %+v: %v", at0.ended, at0.cause)
		}
	}
	if at0.ended[0].Session == at0.ended[1].Session {
		t.Error("two sessions have one number")
	}
}

// A packet for one session never reaches the next one.
func TestPacketsOfOneSession(t *testing.T) {
	kit.Check(t)
	a, at := newRank(t, 0)
	b, _ := newRank(t, 1)
	var at0, at1 recorder
	if err := errors.Join(a.Handle(1, &at0), b.Handle(1, &at1)); err != nil {
		t.Fatal(err)
	}
	var origins []comm.Origin
	for range 2 {
		if err := b.Connect(t.Context(), 0, at); err != nil {
			t.Fatal(err)
		}
		in, err := b.Origin(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err = b.SendPacketIn(t.Context(), in, 1, []byte("s"), []byte("end")); err != nil {
			t.Error(err)
		}
		if sent, terr := b.TryPacketIn(in, 1, []byte("try")); terr != nil || !sent {
			t.Errorf("%v, %v", sent, terr)
		}
		origins = append(origins, in)
		at0.heard(t, 2*len(origins), len(origins)-1)
		if len(origins) == 1 {
			if err = b.Disconnect(0); err != nil {
				t.Fatal(err)
			}
			at0.heard(t, 2, 1)
		}
	}
	if err := b.SendPacketIn(t.Context(), origins[0], 1, nil); !errors.Is(err, control.ErrDisconnected) {
		t.Errorf("to a session that has ended: %v", err)
	}
	if sent, err := b.TryPacketIn(origins[0], 1, nil); sent || !errors.Is(err, control.ErrDisconnected) {
		t.Errorf("to a session that has ended: %v, %v", sent, err)
	}
	if err := b.SendPacketIn(t.Context(), comm.Origin{Rank: 7, Session: 1}, 1, nil); !errors.Is(err, control.ErrDisconnected) {
		t.Errorf("to nobody: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.SendPacketIn(t.Context(), origins[1], 1, nil); !errors.Is(err, comm.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestHandlerThatRefuses(t *testing.T) {
	kit.Check(t)
	a, at := newRank(t, 0)
	b, _ := newRank(t, 1)
	h := recorder{refuse: errors.New("nonsense")}
	if err := a.Handle(1, &h); err != nil {
		t.Fatal(err)
	}
	if err := b.Connect(t.Context(), 0, at); err != nil {
		t.Fatal(err)
	}
	if err := b.SendPacket(t.Context(), 0, 1, []byte("x")); err != nil {
		t.Fatal(err)
	}
	h.heard(t, 1, 1)
	if !errors.Is(h.cause, h.refuse) {
		t.Error(h.cause)
	}
	a.Unhandle(1)
	if err := a.Handle(1, &h); err != nil {
		t.Error(err)
	}
}
