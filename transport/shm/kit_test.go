package shm

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
)

// patience is the time limit for events that must happen, however busy the
// machine is.
const patience = 30 * time.Second

func within(t *testing.T) context.Context {
	t.Helper()
	return kit.Context(t, patience)
}

// connected is the two ends of a socket.
func connected(t *testing.T, network string) (a, b net.Conn) {
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
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// side is one side of a session.
type side struct {
	*provider
	table *region.Table
}

// sides are two sides that have met.
func sides(t *testing.T) (a, b *side) {
	t.Helper()
	near, far := connected(t, "unix")
	engine, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cerr := engine.Close(); cerr != nil {
			t.Error(cerr)
		}
	})
	var starters [2]window.Starter
	for i, c := range []net.Conn{near, far} {
		s := window.Setting{Conn: c, Peer: 2, Timeout: patience, Logger: zap.NewNop()}
		if starters[i], err = New(Options{}).Open(s); err != nil {
			t.Fatal(err)
		}
	}
	offers := [2]window.Offer{passed(t, starters[0].Start()), passed(t, starters[1].Start())}
	var out [2]*side
	for i, s := range starters {
		p, err := s.Handshake(offers[1-i])
		if err != nil {
			t.Fatal(err)
		}
		own, _ := p.(*provider)
		out[i] = &side{provider: own, table: region.NewTable(engine)}
		t.Cleanup(own.Close)
	}
	return out[0], out[1]
}

// passed returns an offer as it is received from a socket: with descriptors of
// its own.
func passed(t *testing.T, o window.Offer) window.Offer {
	t.Helper()
	out := window.Offer{Blob: o.Blob}
	for _, f := range o.Files {
		out.Files = append(out.Files, again(t, f))
	}
	return out
}

// again returns another descriptor of an open file, for a callee that closes it.
func again(t *testing.T, f *os.File) *os.File {
	t.Helper()
	conn, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var fd int
	var inner error
	err = conn.Control(func(own uintptr) { fd, inner = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, inner); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// kept closes a buffer at the test's end.
func kept(t *testing.T, b *region.Buffer, err error) *region.Buffer {
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

func (s *side) alloc(t *testing.T, n devices.Size) *region.Buffer {
	t.Helper()
	b, err := s.table.Alloc(n)
	return kept(t, b, err)
}

// completed is notified of the end of an operation.
type completed chan error

func (c completed) Complete(err error) { c <- err }
