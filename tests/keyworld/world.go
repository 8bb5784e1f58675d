package keyworld

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/conformance/heterotest"
)

// Options say what the mount has.
type Options struct {
	// Devices are those that memory of this process can be of.
	Devices []devices.Name
	// HostRoom bounds its host device, in bytes.
	HostRoom devices.Size
}

// World is one mount.
type World struct {
	socket string
	opts   Options
}

// New is the world of the mount whose daemon listens at a socket.
func New(socket string, o Options) *World { return &World{socket: socket, opts: o} }

// Devices are those of the options.
func (w *World) Devices() []devices.Name { return w.opts.Devices }

// Huge is any device: what is not written of shared memory takes no room.
func (w *World) Huge() devices.Name { return w.opts.Devices[0] }

// HostRoom is that of the options.
func (w *World) HostRoom() devices.Size { return w.opts.HostRoom }

// Join opens a session.
func (w *World) Join(t testing.TB) heterotest.Peer {
	t.Helper()
	before := connections(t, w.socket)
	s, err := client.OpenSession(t.Context(), w.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("end a session: %v", err)
		}
	})
	p := &peer{session: s}
	for inode, fd := range connections(t, w.socket) {
		if _, old := before[inode]; !old {
			p.held = append(p.held, fd)
		}
	}
	return p
}

// Listen begins to watch.
func (w *World) Listen(t testing.TB) heterotest.Listener {
	t.Helper()
	watch, err := client.New(w.socket).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := watch.Close(); err != nil {
			t.Error(err)
		}
	})
	return listener{watch}
}

type listener struct{ watch *client.Watch }

func (l listener) Next(ctx context.Context) (heterotest.Event, error) {
	e, err := l.watch.Next(ctx)
	return heterotest.Event{Kind: e.Kind, Key: e.Key, Size: e.Size}, err
}

// connections are the connections of this process to a socket: their
// descriptors, by the inode.
func connections(t testing.TB, socket string) map[uint64]int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	out := map[uint64]int{}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		name, err := unix.Getpeername(fd)
		if err != nil || unix.Fstat(fd, &st) != nil {
			continue // no socket, or closed since
		}
		if at, ok := name.(*unix.SockaddrUnix); ok && at.Name == socket {
			out[st.Ino] = fd
		}
	}
	return out
}

// peer is a session.
type peer struct {
	session *client.Session
	// held is the session's own connection.
	held []int
}

// Client is the session.
func (p *peer) Client() hetero.Client { return p.session }

// Kill ends the session's connection, as the kernel does for a process that
// has died.
func (p *peer) Kill(t testing.TB) {
	t.Helper()
	if len(p.held) != 1 {
		t.Fatalf("a session has %d connections", len(p.held))
	}
	if err := unix.Shutdown(p.held[0], unix.SHUT_RDWR); err != nil && !errors.Is(err, unix.ENOTCONN) {
		t.Fatal(err)
	}
}

// Memory makes shared memory and registers it.
func (p *peer) Memory(t testing.TB, device devices.Name, n devices.Size) heterotest.Memory {
	t.Helper()
	fd, err := unix.MemfdCreate("keyworld", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "memfd")
	t.Cleanup(func() { _ = f.Close() })
	if err = f.Truncate(int64(n)); err != nil {
		t.Fatal(err)
	}
	m, files := Shared(device, n, f)
	id, err := p.session.PreRegister(t.Context(), hetero.Memory{Device: device, Share: m, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	return &memory{id: id, file: f}
}

// Shared returns the text of shared memory: all of a file, whose descriptor keeps it
// alive, whatever process it is of.
func Shared(device devices.Name, n devices.Size, f *os.File) (*share.Memory, []*os.File) {
	first := 0
	return &share.Memory{
		Family: devices.Family(strings.TrimRight(string(device), "0123456789")), Size: n,
		Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &first, Size: n}},
	}, []*os.File{f}
}

// memory is shared memory.
type memory struct {
	id   hetero.MemoryID
	file *os.File
}

// ID is the session's.
func (m *memory) ID() hetero.MemoryID { return m.id }

// Write puts bytes at an offset.
func (m *memory) Write(t testing.TB, off devices.Offset, p []byte) {
	t.Helper()
	if _, err := m.file.WriteAt(p, int64(off)); err != nil {
		t.Fatal(err)
	}
}

// Read fills p with the bytes at an offset.
func (m *memory) Read(t testing.TB, off devices.Offset, p []byte) {
	t.Helper()
	if _, err := m.file.ReadAt(p, int64(off)); err != nil {
		t.Fatal(err)
	}
}
