package shm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const both = wire.Readable | wire.Writable

// memfd returns n bytes of shared memory with some seals.
func memfd(t *testing.T, n int64, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	if err := f.Truncate(n); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return f
}

func opening(t *testing.T, f *os.File, err error) []*os.File {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return []*os.File{f}
}

// TestOffersThatAreRefused opens offers of a peer that follows no rule.
func TestOffersThatAreRefused(t *testing.T) {
	kit.Check(t)
	a, _ := sides(t)
	sealed := unix.F_SEAL_SHRINK
	byMapAt := func(off uint64) []byte { return (&place{how: byMap, off: off}).encode() }
	byCallAt := func(off uint64) []byte { return (&place{how: byCall, off: off}).encode() }
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// It is a regular file, on a file system that is not in memory.
	status, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = inspect(status); err == nil {
		t.Error("a file of procfs is one in memory")
	}
	near, _ := connected(t, "unix")
	u, _ := near.(*net.UnixConn)
	socket, serr := u.File()
	reader, rerr := os.OpenFile(fifo, unix.O_RDWR|unix.O_NONBLOCK, 0)
	zero, zerr := os.Open("/dev/zero")
	dir, derr := os.Open("/dev/shm")
	path, perr := os.OpenFile("/dev/shm", unix.O_PATH, 0)
	readOnly := memfd(t, 4096, sealed)
	only, oerr := os.Open(fmt.Sprintf("/proc/self/fd/%d", readOnly.Fd()))
	_ = readOnly.Close()
	for what, tc := range map[string]struct {
		blob  []byte
		files []*os.File
		size  devices.Size
	}{
		"no blob":             {files: opening(t, memfd(t, 4096, sealed), nil)},
		"nonsense":            {blob: kit.Bytes(1, 0, 100), files: opening(t, memfd(t, 4096, sealed), nil)},
		"no descriptor":       {blob: byMapAt(0)},
		"two descriptors":     {blob: byMapAt(0), files: []*os.File{memfd(t, 4096, sealed), memfd(t, 4096, sealed)}},
		"not sealed":          {blob: byMapAt(0), files: opening(t, memfd(t, 4096, 0), nil)},
		"sealed to grow only": {blob: byMapAt(0), files: opening(t, memfd(t, 4096, unix.F_SEAL_GROW), nil)},
		"too short":           {blob: byMapAt(0), files: opening(t, memfd(t, 4095, sealed), nil)},
		"behind the end":      {blob: byMapAt(1), files: opening(t, memfd(t, 4096, sealed), nil)},
		"wraps":               {blob: byMapAt(1<<64 - 4096), files: opening(t, memfd(t, 4096, sealed), nil)},
		"a huge size":         {blob: byMapAt(0), files: opening(t, memfd(t, 4096, sealed), nil), size: 1<<63 - 1},
		"calls too short":     {blob: byCallAt(1), files: opening(t, memfd(t, 4096, 0), nil)},
		"calls that wrap":     {blob: byCallAt(1<<64 - 4096), files: opening(t, memfd(t, 4096, 0), nil)},
		"to be read alone":    {blob: byMapAt(0), files: opening(t, only, oerr)},
		"a pipe":              {blob: byCallAt(0), files: opening(t, reader, rerr)},
		"a device":            {blob: byCallAt(0), files: opening(t, zero, zerr)},
		"a socket":            {blob: byCallAt(0), files: opening(t, socket, serr)},
		"a directory":         {blob: byCallAt(0), files: opening(t, dir, derr)},
		"a path":              {blob: byCallAt(0), files: opening(t, path, perr)},
		"a file of procfs":    {blob: byCallAt(0), files: opening(t, status, nil)},
		"an unknown device":   {blob: (&place{how: byIPC, uuid: "GPU-1", handle: "x", allocation: 4096}).encode()},
		"no device":           {blob: (&place{how: byIPC, handle: "x", allocation: 4096}).encode()},
		"a device's file":     {blob: (&place{how: byVMM, uuid: "GPU-1"}).encode(), files: opening(t, memfd(t, 4096, 0), nil)},
	} {
		size := tc.size
		if size == 0 {
			size = 4096
		}
		w, err := a.Import(window.Offer{Blob: tc.blob, Files: tc.files}, size, both)
		if err == nil {
			t.Errorf("%s: opened", what)
			_ = w.Close()
		}
		for _, f := range tc.files {
			if err := f.Close(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s: a descriptor is left: %v", what, err)
			}
		}
	}
}

// TestMemoryThatIsNotThere opens an unallocated terabyte, which must not be
// allocated.
func TestMemoryThatIsNotThere(t *testing.T) {
	kit.Check(t)
	a, _ := sides(t)
	before := residentPages(t)
	for range 10 {
		f := memfd(t, 1<<40, unix.F_SEAL_SHRINK)
		w, err := a.Import(window.Offer{Blob: (&place{how: byMap}).encode(), Files: []*os.File{f}}, 1<<40, both)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if grown := residentPages(t) - before; grown > 16<<20/os.Getpagesize() {
		t.Errorf("%d pages were taken", grown)
	}
}

// residentPages returns the resident memory of this process, in pages.
func residentPages(t *testing.T) int {
	t.Helper()
	runtime.GC()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return int(usage.Maxrss) * 1024 / os.Getpagesize()
}

// TestWindows puts and gets by each method of opening memory, with each right.
func TestWindows(t *testing.T) {
	kit.Check(t)
	a, b := sides(t)
	const size = 10_000
	whole := a.alloc(t, size+9000)
	alias, err := a.table.Register(whole.Host(4097, size))
	alias = kept(t, alias, err)
	f := kit.Memfd(t, 1, size+100)
	file, err := a.table.RegisterFile("host", f, 77, size)
	file = kept(t, file, err)
	local := b.alloc(t, size)
	for _, rights := range []wire.Rights{wire.Readable, wire.Writable, both} {
		for name, x := range map[string]func() (window.Export, error){
			"mapped": func() (window.Export, error) { return a.Export(alias, rights) },
			"file":   func() (window.Export, error) { return a.Export(file, rights) },
		} {
			ex, err := x()
			if err != nil {
				t.Fatal(name, err)
			}
			w, err := b.Import(passed(t, ex.Offer()), size, rights)
			if err != nil {
				t.Fatal(name, rights, err)
			}
			usesAll(t, w, local, rights)
			if err := errors.Join(w.Close(), ex.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// usesAll puts and gets as far as the rights allow it: nothing else is tried,
// since the caller of Start has checked them.
func usesAll(t *testing.T, w window.Window, local *region.Buffer, rights wire.Rights) {
	t.Helper()
	n := local.Size() - 9
	for kind, need := range map[wire.Kind]wire.Rights{wire.KindPut: wire.Writable, wire.KindGet: wire.Readable} {
		if !rights.Allows(need) {
			continue
		}
		done := make(completed, 1)
		w.Start(&window.Op{
			Kind: kind, Local: local, LocalOff: 5, RemoteOff: 9, Size: n, Waits: true, Withdrawn: &atomic.Bool{},
		}, done)
		if err := <-done; err != nil {
			t.Errorf("%s by a key to %s: %v", kind, rights, err)
		}
	}
}

// FuzzPlace decodes offers.
func FuzzPlace(f *testing.F) {
	f.Add((&place{how: byMap, off: 1}).encode())
	f.Add((&place{how: byIPC, off: 1, allocation: 2, uuid: "GPU-1", handle: "handle"}).encode())
	f.Fuzz(func(t *testing.T, p []byte) {
		at, err := parsePlace(p)
		if err == nil && string(at.encode()) != string(p) {
			t.Errorf("% x is read as %+v", p, at)
		}
	})
}

// after is a Completer that fails if it is called before Start has returned.
type after struct {
	t        *testing.T
	returned chan struct{}
	done     completed
}

func (a *after) Complete(err error) {
	select {
	case <-a.returned:
	case <-time.After(patience):
		a.t.Error("Start did the work itself")
	}
	a.done.Complete(err)
}

// TestLargeInTheBackground starts large operations without waiting for them, and
// ends the provider with some of them in progress.
func TestLargeInTheBackground(t *testing.T) {
	kit.Check(t)
	a, b := sides(t)
	memory, local := a.alloc(t, 32<<20), b.alloc(t, 32<<20)
	kit.FillAt(local.Host(0, local.Size()), 3, 0)
	ex, err := a.Export(memory, both)
	if err != nil {
		t.Fatal(err)
	}
	w, err := b.Import(passed(t, ex.Offer()), memory.Size(), both)
	if err != nil {
		t.Fatal(err)
	}
	begin := func(returned chan struct{}) *after {
		f := &after{t: t, returned: returned, done: make(completed, 1)}
		w.Start(&window.Op{Kind: wire.KindPut, Local: local, Size: local.Size(), Withdrawn: &atomic.Bool{}}, f)
		return f
	}
	returned := make(chan struct{})
	first := begin(returned)
	close(returned)
	if err := <-first.done; err != nil {
		t.Fatal(err)
	}
	if at := kit.DiffAt(memory.Host(0, memory.Size()), 3, 0); at >= 0 {
		t.Errorf("byte %d was not put", at)
	}
	// Each worker stays in its first operation until the end has started.
	all := make([]*after, 20)
	ending := make(chan struct{})
	for i := range all {
		all[i] = begin(ending)
	}
	go func() { <-b.Done(); close(ending) }()
	b.Close()
	failed := 0
	for _, f := range all {
		if <-f.done != nil {
			failed++
		}
	}
	if failed < len(all)-maxWorkers {
		t.Errorf("%d of %d were given up at the end", failed, len(all))
	}
	done := make(completed, 1)
	w.Start(&window.Op{Kind: wire.KindPut, Local: local, Size: 1, Withdrawn: &atomic.Bool{}}, done)
	if err := <-done; err == nil {
		t.Error("put after the end")
	}
	if err := errors.Join(w.Close(), ex.Close()); err != nil {
		t.Error(err)
	}
}

// TestWithdrawn ends an operation whose window is withdrawn.
func TestWithdrawn(t *testing.T) {
	a, b := sides(t)
	memory, local := a.alloc(t, 100), b.alloc(t, 100)
	ex, err := a.Export(memory, both)
	if err != nil {
		t.Fatal(err)
	}
	w, err := b.Import(passed(t, ex.Offer()), memory.Size(), both)
	if err != nil {
		t.Fatal(err)
	}
	var taken atomic.Bool
	taken.Store(true)
	done := make(completed, 1)
	w.Start(&window.Op{Kind: wire.KindPut, Local: local, Size: 1, Waits: true, Withdrawn: &taken}, done)
	if err := <-done; !errors.Is(err, region.ErrKey) {
		t.Errorf("withdrawn: %v", err)
	}
	if err := errors.Join(w.Close(), ex.Close()); err != nil {
		t.Error(err)
	}
}
