package region

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

// TestSources asks for the source of memory, as a provider does that passes it
// on.
func TestSources(t *testing.T) {
	table := newTable(t)
	whole, err := table.Alloc(100_000)
	kept(t, whole, err)
	alias, err := table.Register(whole.Host(5000, 1000))
	kept(t, alias, err)
	for b, off := range map[*Buffer]uint64{whole: 0, alias: 5000} {
		src := b.Source()
		if src.File == nil || !src.Sealed || src.Off != off {
			t.Fatalf("source of %d bytes: %+v", b.Size(), src)
		}
		put(t, b, 0, kit.Bytes(off, 0, 1000))
		got := make([]byte, 1000)
		if _, err = src.File.ReadAt(got, int64(src.Off)); err != nil || kit.DiffAt(got, off, 0) >= 0 {
			t.Errorf("the file has not the memory's bytes: %v", err)
		}
		if src.File.Truncate(10) == nil {
			t.Error("memory was cut")
		}
	}
	plain, err := table.Register(make([]byte, 10))
	kept(t, plain, err)
	if src := plain.Source(); src != (Source{}) {
		t.Errorf("source of ordinary bytes: %+v", src)
	}
}

// TestFiles registers a part of a file.
func TestFiles(t *testing.T) {
	table := newTable(t)
	f := kit.Memfd(t, 1, 100_000)
	b, err := table.RegisterFile("host", f, 1000, 50_000)
	kept(t, b, err)
	inner, err := table.RegisterFile("host", f, 2000, 10)
	kept(t, inner, err)
	if s := table.Stats(); s.Registrations != 1 || s.Aliases != 1 {
		t.Errorf("a part of a registered part: %+v", s)
	}
	if b.Device() != "host" || b.Host(0, 10) != nil || b.Source().Off != 1000 || b.Source().Sealed {
		t.Errorf("%q, %+v", b.Device(), b.Source())
	}
	got := make([]byte, 100)
	if err = b.Load(t.Context(), transport.HostSpan(got), 7); err != nil || kit.DiffAt(got, 1, 1007) >= 0 {
		t.Errorf("load: %v", err)
	}
	put(t, b, 49_900, kit.Bytes(2, 0, 100))
	if _, err = f.ReadAt(got, 50_900); err != nil || kit.DiffAt(got, 2, 0) >= 0 {
		t.Errorf("store: %v", err)
	}
	if err = b.Store(t.Context(), 49_901, transport.HostSpan(got)); !errors.Is(err, devices.ErrRange) {
		t.Errorf("behind the end: %v", err)
	}
	if err = f.Truncate(1500); err != nil {
		t.Fatal(err)
	}
	if err = b.Load(t.Context(), transport.HostSpan(got), 450); !errors.Is(err, devices.ErrRange) {
		t.Errorf("from a file that was cut: %v", err)
	}
	reader, err := os.Open(filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd()))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	if _, err := table.RegisterFile("host", reader, 0, 10); !errors.Is(err, devices.ErrUnsupported) {
		t.Errorf("a file that can't be written: %v", err)
	}
	for _, r := range [][2]int64{{-1, 10}, {0, 0}, {1<<63 - 1, 10}} {
		if _, err := table.RegisterFile("host", f, r[0], devices.Size(r[1])); !errors.Is(err, devices.ErrRange) {
			t.Errorf("%v: %v", r, err)
		}
	}
}

// TestWatch notifies the watchers of a buffer that it is closed, and makes Close
// wait for them.
func TestWatch(t *testing.T) {
	table := newTable(t)
	b, err := table.Alloc(100)
	kept(t, b, err)
	if err := b.Hold(); err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 9)
	b.Watch(func() { told <- "first"; b.Drop() })
	b.Unwatch(b.Watch(func() { told <- "second" }))
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Watch(func() { told <- "late" })
	if a, c := <-told, <-told; a != "first" || c != "late" || len(told) != 0 {
		t.Errorf("told %s, %s and %d more", a, c, len(told))
	}
}

// kept closes a buffer at the test's end.
func kept(t *testing.T, b *Buffer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeBuffer(t, b) })
}

func put(t *testing.T, b *Buffer, off devices.Offset, p []byte) {
	t.Helper()
	if err := b.Store(t.Context(), off, transport.HostSpan(p)); err != nil {
		t.Fatal(err)
	}
}
