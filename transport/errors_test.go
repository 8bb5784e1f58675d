package transport_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/transport"
)

// failing makes the devices of one copy such that the nth operation fails,
// counted over all of them.
type failing struct {
	nth   int64
	count atomic.Int64
}

func (f *failing) before(string) error {
	if f.count.Add(1)-1 == f.nth {
		return errInjected
	}
	return nil
}

// ends are like those of the conformance list; the fault is enabled by arm.
func (f *failing) ends(t *testing.T) (all map[string]transporttest.End, arm func(), views func() int64) {
	t.Helper()
	rams := map[string]*ram{"plain": newRAM("plain"), "plain2": newRAM("plain2")}
	mapped, mapped2, peer := newMappedRAM("mapped"), newMappedRAM("mapped2"), newPeerRAM("peer")
	all = map[string]transporttest.End{
		"host":    transporttest.HostBytes(),
		"file":    transporttest.Files("host", t.TempDir()),
		"sealed":  transporttest.Sealed("host"),
		"plain":   transporttest.Device(rams["plain"]),
		"plain2":  transporttest.Device(rams["plain2"]),
		"mapped":  transporttest.Device(mapped),
		"mapped2": transporttest.Device(mapped2),
		"peer":    transporttest.Device(peer),
	}
	set := func(before func(string) error) {
		for _, d := range []*ram{rams["plain"], rams["plain2"], mapped.ram, mapped2.ram, peer.ram} {
			d.before = before
		}
	}
	// Disarming is the first clean-up to run, before those that read.
	arm = func() { set(f.before) }
	t.Cleanup(func() { set(nil) })
	return all, arm, func() int64 { set(nil); return mapped.views.Load() + mapped2.views.Load() }
}

// TestErrors fails the nth operation of every path, n = 0, 1, 2, …, until
// the copy has none left to fail.
func TestErrors(t *testing.T) {
	rams := map[string]bool{"plain": true, "plain2": true, "mapped": true, "mapped2": true, "peer": true}
	for _, c := range pairs() {
		if strings.Contains(c.src+c.dst, "sim") {
			continue // ram can be told to fail
		}
		if !rams[c.src] && !rams[c.dst] {
			continue // no device takes part
		}
		t.Run(c.src+"-"+c.dst, func(t *testing.T) {
			for n := int64(0); ; n++ {
				if failNth(t, n, c.src, c.dst, c.device) {
					return
				}
				if n > 100 {
					t.Fatal("the copy never succeeds")
				}
			}
		})
	}
}

// failNth reports whether the copy completed before the nth operation.
func failNth(t *testing.T, nth int64, srcName, dstName string, device devices.Name) bool {
	t.Helper()
	const size, margin = 5*int(testChunk) + 9, 50
	f := &failing{nth: nth}
	all, arm, disarm := f.ends(t)
	var told []transport.CopyInfo
	e := newEngine(t, transport.Options{ChunkSize: testChunk, Listener: transport.Listener{
		Copied: func(info transport.CopyInfo) { told = append(told, info) },
	}})
	before := transporttest.Pattern(9, size+2*margin)
	src, dst := all[srcName].Make(t, transporttest.Pattern(8, size)), all[dstName].Make(t, before)
	to, from := dst.Span(t, margin, size), src.Span(t, 0, size)
	arm()
	_, err := e.Copy(t.Context(), to, from)
	if views := disarm(); views != 0 {
		t.Errorf("op %d: %d views not released", nth, views)
	}
	if used := e.Stats().PinnedInUse; used != 0 {
		t.Errorf("op %d: %v of slots not released", nth, used)
	}
	got := dst.Read(t)
	if !bytes.Equal(got[:margin], before[:margin]) || !bytes.Equal(got[margin+size:], before[margin+size:]) {
		t.Errorf("op %d: bytes outside the destination changed", nth)
	}
	if len(told) != 1 || !errors.Is(told[0].Err, err) || told[0].Device != device {
		t.Errorf("op %d: the listener was told %+v, want one copy of %s that ended with %v", nth, told, device, err)
	}
	if err == nil {
		if !bytes.Equal(got[margin:margin+size], transporttest.Pattern(8, size)) {
			t.Errorf("op %d: wrong bytes", nth)
		}
		return true
	}
	if !errors.Is(err, errInjected) {
		t.Errorf("op %d: %v, want %v", nth, err, errInjected)
	}
	if rows := e.Stats().Paths; len(rows) != 1 || rows[0].Errors != 1 || rows[0].Operations != 0 || rows[0].Bytes != 0 {
		t.Errorf("op %d: counters %+v, want one error", nth, rows)
	}
	return false
}

// TestNoGoroutineLeft runs copies that fail, and ones that don't, and waits
// for the number of goroutines to come back.
func TestNoGoroutineLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	for n := range int64(12) {
		failNth(t, n, "plain", "plain2", "plain2")
	}
	for range 1_000_000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

func TestErrorText(t *testing.T) {
	src, dst := newRAM("sim0"), newRAM("sim1")
	e := newEngine(t, transport.Options{})
	from, to := memoryOn(t, src, devices.MiB), memoryOn(t, dst, devices.MiB)
	src.before = func(string) error { return errInjected }
	_, err := e.Copy(t.Context(), transport.DeviceSpan(to), transport.DeviceSpan(from))
	const want = "copy 1.0 MiB from sim0 to sim1 (staged): sim0: injected"
	if err == nil || err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

// TestNoSpace writes to the kernel's full device.
func TestNoSpace(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = full.Close() })
	e := newEngine(t, transport.Options{ChunkSize: testChunk})
	const n = 3 * testChunk
	dst := transport.FileSpan("host", full, 0, n)
	sources := map[string]transport.Span{
		"host":   transport.HostSpan(make([]byte, n)),
		"plain":  transport.DeviceSpan(memoryOn(t, newRAM("plain"), n)),
		"mapped": transport.DeviceSpan(memoryOn(t, newMappedRAM("mapped"), n)),
	}
	check := func(what string, err error) {
		if !errors.Is(err, devices.ErrOutOfMemory) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s into a full file: %v, want out of memory and ENOSPC", what, err)
		}
	}
	for name, src := range sources {
		_, err := e.Copy(t.Context(), dst, src)
		check("copy from "+name, err)
	}
	check("fill", e.Fill(t.Context(), dst, 1))
}

// TestFileEnds copies from beyond the end of a file.
func TestFileEnds(t *testing.T) {
	const n = 3 * testChunk
	f := tempFile(t, transporttest.Pattern(1, int(n)-5))
	other := tempFile(t, nil)
	e := newEngine(t, transport.Options{ChunkSize: testChunk})
	src := transport.FileSpan("host", f, 0, n)
	for name, dst := range map[string]transport.Span{
		"host":   transport.HostSpan(make([]byte, n)),
		"plain":  transport.DeviceSpan(memoryOn(t, newRAM("plain"), n)),
		"mapped": transport.DeviceSpan(memoryOn(t, newMappedRAM("mapped"), n)),
		"file":   transport.FileSpan("host", other, 0, n),
	} {
		_, err := e.Copy(t.Context(), dst, src)
		if !errors.Is(err, devices.ErrRange) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("copy to %s: %v, want %v and %v", name, err, devices.ErrRange, io.ErrUnexpectedEOF)
		}
	}
}

// TestTwoFileSystems copies between files that the kernel itself can't copy
// between.
func TestTwoFileSystems(t *testing.T) {
	mem := memFile(t)
	want := transporttest.Pattern(1, 5*int(testChunk)+9)
	disk := tempFile(t, want)
	e := newEngine(t, transport.Options{ChunkSize: testChunk})
	n := devices.Size(len(want))
	path, err := e.Copy(t.Context(), transport.FileSpan("host", mem, 3, n), transport.FileSpan("host", disk, 0, n))
	if err != nil || path != transport.PathD2D {
		t.Fatalf("path %q, error %v", path, err)
	}
	got := make([]byte, n)
	if _, err := mem.ReadAt(got, 3); err != nil || !bytes.Equal(got, want) {
		t.Errorf("wrong bytes, error %v", err)
	}
}

func TestBadSpans(t *testing.T) {
	d := newRAM("ram0")
	lost, err := d.Alloc(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lost.Release() })
	d.epoch.Add(1)
	e := newEngine(t, transport.Options{})
	f := tempFile(t, nil)
	for _, c := range []struct {
		name string
		span transport.Span
		want error
	}{
		{"lost", transport.DeviceSpan(lost.All()), devices.ErrLost},
		{"outside", transport.DeviceSpan(devices.Span{Mem: lost, Range: devices.Range{Off: 1, Len: 100}}), devices.ErrRange},
		{"no memory", transport.DeviceSpan(devices.Span{Range: devices.Range{Len: 100}}), devices.ErrRange},
		{"no file", transport.FileSpan("host", nil, 0, 100), devices.ErrRange},
		{"before the file", transport.FileSpan("host", f, -1, 100), devices.ErrRange},
	} {
		t.Run(c.name, func(t *testing.T) {
			host := transport.HostSpan(make([]byte, 100))
			if _, err := e.Copy(t.Context(), host, c.span); !errors.Is(err, c.want) {
				t.Errorf("copy from it: %v, want %v", err, c.want)
			}
			if _, err := e.Copy(t.Context(), c.span, host); !errors.Is(err, c.want) {
				t.Errorf("copy into it: %v, want %v", err, c.want)
			}
			if err := e.Fill(t.Context(), c.span, 0); !errors.Is(err, c.want) {
				t.Errorf("fill it: %v, want %v", err, c.want)
			}
		})
	}
}

// memFile is an empty file in memory.
func memFile(tb testing.TB) *os.File {
	tb.Helper()
	fd, err := unix.MemfdCreate("transport-test", unix.MFD_CLOEXEC)
	if err != nil {
		tb.Skip(err)
	}
	f := os.NewFile(uintptr(fd), "memfd")
	tb.Cleanup(func() { _ = f.Close() })
	return f
}

func tempFile(t *testing.T, content []byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	return f
}
