package tcp

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/internal/pages"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const (
	patience  = 30 * time.Second
	testChunk = 64 << 10
)

// side is one end of a channel and its memory.
type side struct {
	channel *Channel
	keys    *region.Keys
	table   *region.Table
	engine  *transport.Engine
	devs    map[*region.Buffer]devices.Device
}

// sockets is the two ends of a connection.
func sockets(t testing.TB, network string) (a, b net.Conn) {
	t.Helper()
	at := "127.0.0.1:0"
	if network == "unix" {
		at = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if a, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// newSide makes an end of a connection.
func newSide(t testing.TB, c net.Conn, o Options) *side {
	t.Helper()
	return newSideOf(t, c, o, testChunk)
}

// newSideOf is newSide with a chunk.
func newSideOf(t testing.TB, c net.Conn, o Options, chunk uint32) *side {
	t.Helper()
	e := o.Engine
	if e == nil {
		var err error
		if e, err = transport.New(transport.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	s := &side{keys: region.NewKeys(), table: region.NewTable(e), engine: e, devs: map[*region.Buffer]devices.Device{}}
	o.Keys, o.Engine, o.Pipes = s.keys, e, &pages.Pool{}
	var err error
	s.channel, err = New(&control.Conn{Conn: c, Peer: 1, Chunk: chunk}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.channel.Close()
		o.Pipes.Close()
		if used := e.Stats().PinnedInUse; used != 0 {
			t.Errorf("%v of pinned slots are left", used)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if live := s.table.Stats().Live; live != 0 {
			t.Errorf("%d registrations are left", live)
		}
	})
	return s
}

// sides is the two ends of a channel over a network.
func sides(t testing.TB, network string, o Options) (a, b *side) {
	t.Helper()
	ca, cb := sockets(t, network)
	return newSide(t, ca, o), newSide(t, cb, o)
}

// host is n bytes of registered host memory.
func (s *side) host(t testing.TB, n devices.Size) *region.Buffer {
	t.Helper()
	b, err := s.table.Alloc(n)
	return s.keep(t, b, err)
}

func (s *side) keep(t testing.TB, b *region.Buffer, err error) *region.Buffer {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.channel.Close()
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// sim is n bytes of registered memory of a simulated device.
func (s *side) sim(t testing.TB, n devices.Size, p sim.Params) *region.Buffer {
	t.Helper()
	m := transporttest.Simulated(t, n, p)
	b, err := s.table.RegisterDevice(m.All())
	s.devs[b] = m.Device()
	return s.keep(t, b, err)
}

// crash makes the device of a buffer lose its memory.
func (s *side) crash(t testing.TB, b *region.Buffer) {
	t.Helper()
	dev, ok := s.devs[b].(interface{ Crash() })
	if !ok {
		t.Fatal("not a device that crashes")
	}
	dev.Crash()
}

// grant grants the other side a key.
func (s *side) grant(t testing.TB, b *region.Buffer, rights wire.Rights) wire.Descriptor {
	t.Helper()
	d, err := s.keys.Grant(b, rights)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// waiter is a Completer that can be waited for repeatedly.
type waiter chan error

func (w waiter) Complete(err error) { w <- err }

func newWaiter() waiter { return make(waiter, 1) }

func (w waiter) wait(t testing.TB) error {
	t.Helper()
	select {
	case err := <-w:
		return err
	case <-time.After(patience):
		t.Fatal("the transfer never ends")
		return nil
	}
}

// do runs one transfer to its end.
func (s *side) do(t testing.TB, p Plan) error {
	t.Helper()
	var tr Transfer
	w := newWaiter()
	if err := tr.Start(p, w); err != nil {
		return err
	}
	s.channel.Post(&tr)
	return w.wait(t)
}

// mapped is sim with a device that maps its memory for the host.
func (s *side) mapped(t testing.TB, n devices.Size) *region.Buffer {
	t.Helper()
	return s.sim(t, n, sim.Params{Mapped: true})
}
