package comm_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// A rank that connects while the peer connects waits for the peer's attempt; if
// that fails, it connects itself.
func TestConnectBehindAPeerThatGivesUp(t *testing.T) {
	kit.Check(t)
	c := hasty(t)
	at, err := c.Listen(t.Context(), socket(t))
	if err != nil {
		t.Fatal(err)
	}
	_, peer := newRank(t, 0)
	first, err := dialRaw(t, at, wire.Hello{Role: wire.RoleControl, Channel: 1})
	if err == nil {
		_, err = first.Write(ways(wire.Way{Transport: wire.TransportTCP, Usable: true}))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Connect(within(t), 0, peer); err != nil {
		t.Error(err)
	}
}

// hasty is rank 1, which gives handshakes little time.
func hasty(t *testing.T) *comm.Communicator {
	t.Helper()
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := comm.New(comm.Options{Rank: 1, Secret: kit.Bytes(1, 0, 32), Engine: e, HandshakeTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cerr := errors.Join(c.Close(), e.Close()); cerr != nil {
			t.Error(cerr)
		}
	})
	return c
}

// turncoat admits rank 1, and connects to it meanwhile.
type turncoat struct {
	served chan *control.Conn
}

func (h *turncoat) Admit(wire.Hello) (wire.Session, *wire.Refusal) { return 1, nil }

func (h *turncoat) Serve(c *control.Conn) { h.served <- c }

// A session that another one has replaced while it was formed must not become
// live: nothing would find it, and nothing would end it.
func TestReplacedSession(t *testing.T) {
	kit.Check(t)
	c := hasty(t)
	at, err := c.Listen(t.Context(), socket(t))
	if err != nil {
		t.Fatal(err)
	}
	h := &turncoat{served: make(chan *control.Conn, 2)}
	l, err := control.Listen(t.Context(), socket(t), control.Options{Rank: 0, Secret: kit.Bytes(1, 0, 32)}, h)
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan error, 1)
	go func() { connected <- c.Connect(within(t), 0, l.Address()) }()
	first := <-h.served
	if _, err = dialRaw(t, at, wire.Hello{Role: wire.RoleControl, Channel: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err = first.Write(wire.Ways{{Transport: wire.TransportTCP, Usable: true}}.Append(nil, wire.KindChoice)); err != nil {
		t.Fatal(err)
	}
	second := <-h.served
	if err = <-connected; err == nil {
		t.Error("connected with a session that nobody finds")
	}
	dropped(t, first)
	dropped(t, second)
	if err = errors.Join(first.Close(), second.Close(), l.Close()); err != nil {
		t.Error(err)
	}
}
