package comm_test

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
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

// slowDevice is a rank's device that waits before it writes what has arrived.
type slowDevice struct {
	buffer *region.Buffer
	// writing is closed when it begins to write, which it does when proceed is closed.
	writing, proceed chan struct{}
	written          atomic.Bool
}

func newSlowDevice(t *testing.T, of *comm.Communicator, size devices.Size) *slowDevice {
	t.Helper()
	s := &slowDevice{writing: make(chan struct{}), proceed: make(chan struct{})}
	dev := faulty.Wrap(sim.New(0, sim.Params{Size: 2 * size}), func(op faulty.Op) error {
		if op.Kind == faulty.CopyIn {
			close(s.writing)
			<-s.proceed
			s.written.Store(true)
		}
		return nil
	})
	m, err := dev.Alloc(t.Context(), size)
	if err == nil {
		s.buffer, err = of.Table().RegisterDevice(m.All())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cerr := errors.Join(s.buffer.Close(kit.Context(t, patience)), m.Release(), dev.Close()); cerr != nil {
			t.Error(cerr)
		}
	})
	return s
}

// TestNewSessionAfterLateBytes ends a session while a device writes bytes of it: no new one
// begins before they are written, whichever side connects.
func TestNewSessionAfterLateBytes(t *testing.T) {
	for name, giver := range map[string]wire.Rank{"to the side that connects": 0, "to the side that listens": 1} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t, kit.Ignore("/hmcfs-"))
			testLateBytes(t, giver)
		})
	}
}

func testLateBytes(t *testing.T, giver wire.Rank) {
	t.Helper()
	const size = 10_000
	a, at := newRank(t, 0)
	b, _ := newRank(t, 1)
	connect := func() {
		err := b.ConnectAnew(within(t), 0, at) // a may not have noticed the end of the last session
		if err == nil {
			err = a.Await(within(t), 1)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	connect()
	from, to := a, b
	if giver == 1 {
		from, to = b, a
	}
	slow := newSlowDevice(t, to, size)
	local, err := from.Table().Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	d, err := to.Share(within(t), giver, slow.buffer, wire.Writable)
	if err != nil {
		t.Fatal(err)
	}
	put, err := from.PutAsync(within(t), to.Rank(), comm.Op{Local: local, Remote: d, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	<-slow.writing
	in, err := b.Origin(within(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	b.End(in, errors.New("cut"))
	if err = errors.Join(put.Wait(within(t)), local.Close(within(t))); !errors.Is(err, control.ErrDisconnected) {
		t.Errorf("the put: %v", err)
	}
	// Until then a session that does not wait begins.
	time.AfterFunc(50*time.Millisecond, func() { close(slow.proceed) })
	connect()
	if !slow.written.Load() {
		t.Error("a session has begun while the device writes bytes of the one before")
	}
}
