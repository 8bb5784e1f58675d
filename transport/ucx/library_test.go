package ucx

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

func TestWithoutTheLibrary(t *testing.T) {
	lib := &Library{from: systemLibrary()}
	lib.from.Names = []string{"libucp-not-there.so.0"}
	_, err := lib.Open(Options{})
	if !errors.Is(err, dl.ErrNotInstalled) || !strings.Contains(err.Error(), "libucp-not-there.so.0") ||
		!strings.Contains(err.Error(), "apt install libucx0") {
		t.Errorf("got %v", err)
	}
	tr := NewTransport(lib, Options{})
	if _, err := tr.Propose(window.Setting{}); !errors.Is(err, dl.ErrNotInstalled) {
		t.Errorf("proposed: %v", err)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}

// TestRDMALacksADevice needs a machine without RDMA devices, as most are.
func TestRDMALacksADevice(t *testing.T) {
	kit.Require(t, "ucx")
	if entries, err := os.ReadDir(infiniband); err == nil && len(entries) > 0 {
		t.Skip("there is an RDMA adapter")
	}
	_, err := (&Library{}).Open(Options{RDMA: true})
	if !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), infiniband) || !strings.Contains(err.Error(), "No such device") {
		t.Errorf("got %v", err)
	}
}

func TestAdapters(t *testing.T) {
	dir := t.TempDir()
	if got := adapters(dir); !strings.Contains(got, "no RDMA adapter") {
		t.Errorf("of none: %s", got)
	}
	for _, name := range []string{"mlx5_0", "mlx5_1"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if got := adapters(dir); !strings.Contains(got, "mlx5_0, mlx5_1") {
		t.Errorf("of two: %s", got)
	}
}

func TestOptions(t *testing.T) {
	kit.Require(t, "ucx")
	for _, o := range []Options{{Transports: "none-such"}, {Devices: "none-such", Transports: "tcp"}} {
		if _, err := (&Library{}).Open(o); !errors.Is(err, ErrNoDevice) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := (&Library{}).Open(Options{Transports: "a\x00b"}); err == nil {
		t.Error("a zero byte is taken")
	}
}

// TestSignalsStayGos checks that faults, and the signal for which the library
// installs a handler, are caught by Go's handler, as SIGURG is, and that a nil
// pointer is still a panic.
func TestSignalsStayGos(t *testing.T) {
	kit.Require(t, "ucx")
	if _, err := (&Library{}).Version(); err != nil {
		t.Fatal(err)
	}
	all := handlers(t)
	for _, sig := range []unix.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGHUP} {
		if got, want := all[int(sig)], all[int(unix.SIGURG)]; got != want {
			t.Errorf("%v has the handler %#x, Go's is %#x", sig, got, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	nowhere := map[string]*Options{}
	_ = nowhere["none"].Transports
}

// TestDeviceMemory moves device memory through slots at our end, and leaves that
// of the peer to the data connections.
func TestDeviceMemory(t *testing.T) {
	kit.Check(t)
	a, b := newPair(t, Options{})
	const size = 5<<20 + 77
	m := transporttest.Simulated(t, size, sim.Params{})
	local, err := a.table.RegisterDevice(m.All())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = a.Export(local, wire.Readable); !errors.Is(err, devices.ErrUnsupported) {
		t.Errorf("exported: %v", err)
	}
	far := b.alloc(t, size)
	w := open(t, b, a, far)
	transporttest.Fill(t, local, 1)
	must(t, w, window.Op{Kind: wire.KindPut, Local: local, LocalOff: 7, RemoteOff: 5, Size: size - 9})
	transporttest.Check(t, far, 5, size-9, 1, 7)
	transporttest.Fill(t, far, 2)
	must(t, w, window.Op{Kind: wire.KindGet, Local: local, LocalOff: 3, RemoteOff: 4, Size: size - 9})
	transporttest.Check(t, local, 3, size-9, 2, 4)
	a.Close()
	if err := move(w, window.Op{Kind: wire.KindPut, Local: local, Size: size}); !errors.Is(err, devices.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if err := local.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRegisteredOnce exports one buffer often, and parts of it.
func TestRegisteredOnce(t *testing.T) {
	kit.Check(t)
	a, b := newPair(t, Options{Transports: "posix,self", OneSided: true})
	far, local := b.alloc(t, 1<<20), a.alloc(t, 4096)
	part, err := b.table.Register(far.Host(4096, 4096))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := part.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	whole, some := open(t, b, a, far), open(t, b, a, part)
	again := open(t, b, a, far)
	for i := range 100 {
		for _, w := range []window.Window{whole, some, again} {
			must(t, w, window.Op{Kind: wire.Kind(int(wire.KindPut) + i%2*2), Local: local, Size: 4096})
		}
	}
	if got := b.ctx.Stats(); got.Registrations != 1 || got.Reuses != 2 || got.Live != 1 {
		t.Errorf("%+v", got)
	}
	if got := a.ctx.Stats(); got.Registrations != 0 {
		t.Errorf("at our end: %+v", got)
	}
}

// TestManyLibraries opens the library more often than a process may create
// callbacks for C, like a process that opens and closes communicators all its
// life.
func TestManyLibraries(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "ucx")
	const callbacks = 2000
	for range callbacks + 1 {
		if _, err := (&Library{}).Version(); err != nil {
			t.Fatal(err)
		}
	}
	a, b := newPair(t, Options{})
	const size = 1 << 16
	local, far := a.alloc(t, size), b.alloc(t, size)
	w := open(t, b, a, far)
	transporttest.Fill(t, local, 1)
	must(t, w, window.Op{Kind: wire.KindPut, Local: local, Size: size})
	transporttest.Check(t, far, 0, size, 1, 0)
}
