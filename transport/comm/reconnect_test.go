package comm_test

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/control"
)

// halfCut forwards connections. When it cuts, it closes the client ends of
// existing connections, while the server ends stay open and silent until release.
type halfCut struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup
	// closed receives a value for each connection after the cut that the server
	// ends.
	closed chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	clients, servers []net.Conn
	// +checklocks:mu
	held []net.Conn
	// +checklocks:mu
	after bool
}

func newHalfCut(t *testing.T, target control.Address) *halfCut {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &halfCut{listener: l, target: target.Addr, closed: make(chan struct{}, 1000)}
	h.running.Go(h.accept)
	t.Cleanup(func() {
		_ = l.Close()
		h.cut()
		h.release()
		h.running.Wait()
	})
	return h
}

func (h *halfCut) accept() {
	for {
		client, err := h.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", h.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		h.mu.Lock()
		h.clients, h.servers = append(h.clients, client), append(h.servers, server)
		after := h.after
		h.mu.Unlock()
		h.running.Go(func() {
			_, _ = io.Copy(forward{h, server}, client)
			if !h.holds(server) {
				_ = server.Close()
			}
		})
		h.running.Go(func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
			if after {
				h.closed <- struct{}{}
			}
		})
	}
}

// forward writes to the server's end of a connection until that is cut. A client
// that sees the end of one of its connections reports it on the others, which end
// a moment later.
type forward struct {
	by *halfCut
	to net.Conn
}

func (f forward) Write(p []byte) (int, error) {
	if f.by.holds(f.to) {
		return len(p), nil
	}
	return f.to.Write(p)
}

func (h *halfCut) holds(server net.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.held, server)
}

// cut closes only the client ends.
func (h *halfCut) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held, h.after = append(h.held, h.servers...), true
	for _, c := range h.clients {
		_ = c.Close()
	}
	h.clients, h.servers = nil, nil
}

// release closes the server ends of the cut connections.
func (h *halfCut) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.held {
		_ = c.Close()
	}
	h.held = nil
}

// TestReconnectBeforeThePeerNotices reconnects while the peer still considers the
// cut session live: it retries until the peer has noticed.
func TestReconnectBeforeThePeerNotices(t *testing.T) {
	kit.Check(t, kit.Ignore("/hmcfs-"))
	a, _ := newRank(t, 0)
	b, _ := newRank(t, 1)
	at, err := a.Listen(t.Context(), control.Address{Network: control.TCP, Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	between := newHalfCut(t, at)
	by := control.Address{Network: control.TCP, Addr: between.listener.Addr().String()}
	if err = errors.Join(b.Connect(within(t), 0, by), a.Await(within(t), 1)); err != nil {
		t.Fatal(err)
	}
	between.cut()
	again := make(chan error, 1)
	go func() {
		kit.Eventually(t, patience, func() error {
			if b.SendTag(within(t), 0, 1) == nil {
				return errors.New("the session is still live")
			}
			return nil
		})
		again <- b.Reconnect(within(t), 0)
	}()
	select {
	case <-between.closed: // refused: a takes the session for live
	case err = <-again:
		t.Fatalf("before the peer has noticed: %v", err)
	}
	between.release()
	if err = errors.Join(<-again, a.Await(within(t), 1)); err != nil {
		t.Fatal(err)
	}
	if err = b.SendTag(within(t), 0, 7); err != nil {
		t.Fatal(err)
	}
	if tag, err := a.RecvTag(within(t), 1); tag != 7 || err != nil {
		t.Errorf("tag %d, %v", tag, err)
	}
}
