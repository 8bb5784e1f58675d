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

// Options describe the mount.
type Options struct {
	// Devices are the devices to which memory of this process can belong.
	Devices []devices.Name
	// HostRoom is the size of the mount's host device, in bytes.
	HostRoom devices.Size
}

// World represents one mount.
type World struct {
	socket string
	opts   Options
}

// New returns the World of the mount whose daemon listens at a socket.
func New(socket string, o Options) *World { return &World{socket: socket, opts: o} }

// Devices returns the devices of the options.
func (w *World) Devices() []devices.Name { return w.opts.Devices }

// Huge returns any device: unwritten shared memory needs no space.
func (w *World) Huge() devices.Name { return w.opts.Devices[0] }

// HostRoom returns the size given in the options.
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

// Listen starts to watch events.
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

// connections returns this process's descriptors of connections to a socket, by inode
// number.
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
			continue // not a socket, or closed meanwhile
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
	// held is the descriptor of the session's own connection.
	held []int
	// memories counts those created.
	memories int
}

// Client returns the session.
func (p *peer) Client() hetero.Client { return p.session }

// Kill closes the session's connection, as the kernel does when a process dies.
func (p *peer) Kill(t testing.TB) {
	t.Helper()
	if len(p.held) != 1 {
		t.Fatalf("a session has %d connections", len(p.held))
	}
	if err := unix.Shutdown(p.held[0], unix.SHUT_RDWR); err != nil && !errors.Is(err, unix.ENOTCONN) {
		t.Fatal(err)
	}
}

// Memory creates shared memory and registers it. The size of every second one can't change, so
// that the daemon maps it.
func (p *peer) Memory(t testing.TB, device devices.Name, n devices.Size) heterotest.Memory {
	t.Helper()
	f, err := p.create(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	m, files := Shared(device, n, f)
	id, err := p.session.PreRegister(t.Context(), hetero.Memory{Device: device, Share: m, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	return &memory{id: id, file: f}
}

func (p *peer) create(n devices.Size) (*os.File, error) {
	if p.memories++; p.memories%2 == 1 {
		return share.Sealed("keyworld", n)
	}
	fd, err := unix.MemfdCreate("keyworld", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "memfd")
	return f, f.Truncate(int64(n))
}

// Shared returns the description of a whole file of shared memory. Its descriptor keeps the
// memory alive, whichever process owns it.
func Shared(device devices.Name, n devices.Size, f *os.File) (*share.Memory, []*os.File) {
	first := 0
	return &share.Memory{
		Family: devices.Family(strings.TrimRight(string(device), "0123456789")), Size: n,
		Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &first, Size: n}},
	}, []*os.File{f}
}

// memory is registered shared memory.
type memory struct {
	id   hetero.MemoryID
	file *os.File
}

// ID returns the ID of the memory in the session.
func (m *memory) ID() hetero.MemoryID { return m.id }

// Write writes bytes at an offset.
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
