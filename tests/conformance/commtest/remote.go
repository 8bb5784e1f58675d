package commtest

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// newEngine returns an engine that lives as long as the test.
func newEngine(t testing.TB) *transport.Engine {
	t.Helper()
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// localEnds returns the kinds of spans that can be ends of copies with a peer.
func localEnds(t testing.TB) map[string]transporttest.End {
	t.Helper()
	plain, mapped := sim.New(7, sim.Params{Size: 64 * devices.MiB}), sim.New(8, sim.Params{Size: 64 * devices.MiB, Mapped: true})
	t.Cleanup(func() {
		if err := errors.Join(plain.Close(), mapped.Close()); err != nil {
			t.Error(err)
		}
	})
	return map[string]transporttest.End{
		"host": transporttest.HostBytes(), "file": transporttest.Files("host", t.TempDir()),
		"sim": transporttest.Device(plain), "mapped": transporttest.Device(mapped),
	}
}

// testRemoteSpans uses an engine to copy between spans of every kind and memory of every kind of
// a peer, at odd offsets: the bytes arrive, those beside them do not change, and the copy is
// counted for the path that it took.
func testRemoteSpans(t *testing.T, w Way) {
	job := w.pair(t)
	size := large(5<<20) + 77
	_, file := job.file(t, 1, devices.Size(size))
	theirs := map[string]*region.Buffer{
		"host": job.host(t, 1, devices.Size(size)), "sim": job.sim(t, 1, devices.Size(size)), "file": file,
	}
	for at, remote := range theirs {
		d := job.share(t, 1, 0, remote, both)
		for name, end := range localEnds(t) {
			t.Run(name+" and "+at, func(t *testing.T) { remoteSpan(t, job, end, remote, d, size) })
		}
	}
}

// testLentFile copies into a peer's region of a file that is shorter than the region: the
// transport extends the file in order.
func testLentFile(t *testing.T, w Way) {
	job := w.pair(t)
	size := large(5<<20) + 77
	f := kit.Memfd(t, 5, 1000)
	b, err := job.ranks[1].Table().RegisterSpan(transport.FileSpan("host", f, 999, devices.Size(size)))
	b = closing(t, b, err)
	d := job.share(t, 1, 0, b, both)
	e := newEngine(t)
	there := transport.RemoteSpan(job.ranks[0].Remote(1, d), 0, devices.Size(size))
	path, err := e.Copy(within(t), there, transport.HostSpan(kit.Bytes(6, 0, size)))
	if err != nil || w.Transport != "" && w.Transport != comm.UCX && path != transport.Path(w.Transport) {
		t.Fatalf("by %q: %v", path, err)
	}
	got := make([]byte, 999+size+1)
	n, err := f.ReadAt(got, 0)
	if n != 999+size || !errors.Is(err, io.EOF) || kit.DiffAt(got[:999], 5, 0) >= 0 || kit.DiffAt(got[999:n], 6, 0) >= 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
	mine := make([]byte, size)
	if path, err = e.Copy(within(t), transport.HostSpan(mine), there); err != nil || kit.DiffAt(mine, 6, 0) >= 0 {
		t.Errorf("back by %q: %v", path, err)
	}
	if err = f.Truncate(1500); err != nil {
		t.Fatal(err)
	}
	if _, err = e.Copy(within(t), transport.HostSpan(mine), there); err == nil {
		t.Error("from a file that was cut")
	}
	newBystander(t, job, 0, 1).works(t, 3)
}

func remoteSpan(t *testing.T, job *world, end transporttest.End, remote *region.Buffer, d wire.Descriptor, size int) {
	t.Helper()
	e := newEngine(t)
	there := transport.RemoteSpan(job.ranks[0].Remote(1, d), 0, devices.Size(size))
	stretch := end.Make(t, kit.Bytes(1, 0, size))
	n := size - 3000
	part, err := there.Part(11, devices.Size(n))
	if err != nil {
		t.Fatal(err)
	}
	carrier, err := job.ranks[0].Carrier(within(t), 1, d)
	if err != nil {
		t.Fatal(err)
	}
	transporttest.Fill(t, remote, 2)
	path, err := e.Copy(within(t), part, stretch.Span(t, 2001, n))
	if err != nil || path != transport.Path(carrier) {
		t.Fatalf("to the peer by %q, want %q: %v", path, carrier, err)
	}
	transporttest.Check(t, remote, 0, 11, 2, 0)
	transporttest.Check(t, remote, 11, n, 1, 2001)
	transporttest.Check(t, remote, 11+n, size-n-11, 2, 11+n)
	transporttest.Fill(t, remote, 3)
	if path, err = e.Copy(within(t), stretch.Span(t, 501, n), part); err != nil || path != transport.Path(carrier) {
		t.Fatalf("from the peer by %q, want %q: %v", path, carrier, err)
	}
	got := stretch.Read(t)
	for _, c := range []struct {
		from, to int
		seed     uint64
		at       int64
	}{{0, 501, 1, 0}, {501, 501 + n, 3, 11}, {501 + n, size, 1, int64(501 + n)}} {
		if i := kit.DiffAt(got[c.from:c.to], c.seed, c.at); i >= 0 {
			t.Fatalf("byte %d of [%d, %d) here is wrong", c.from+i, c.from, c.to)
		}
	}
	row := e.Stats().Paths[0]
	if row.Operations != 2 || row.Bytes != 2*uint64(n) || row.Path != transport.Path(carrier) || row.Device != stretch.Span(t, 0, 1).Device() {
		t.Errorf("counted as %+v", e.Stats().Paths)
	}
}

// testRemoteErrors tries copies that are impossible, and checks that nothing is left behind.
func testRemoteErrors(t *testing.T, w Way) {
	job := w.pair(t)
	remote := job.host(t, 1, 10_000)
	transporttest.Fill(t, remote, 2)
	full, reads := job.share(t, 1, 0, remote, both), job.share(t, 1, 0, remote, wire.Readable)
	e := newEngine(t)
	span := func(d wire.Descriptor, off devices.Offset, n devices.Size) transport.Span {
		return transport.RemoteSpan(job.ranks[0].Remote(1, d), off, n)
	}
	mine := func(n int) transport.Span { return transport.HostSpan(kit.Bytes(1, 0, n)) }
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	gone := full
	gone.Key++
	for name, c := range map[string]struct {
		late     bool
		dst, src transport.Span
		want     error
	}{
		"beyond the end":  {false, span(full, 1, 10_000), mine(10_000), devices.ErrRange},
		"from the end":    {false, mine(1), span(full, 10_000, 1), devices.ErrRange},
		"far beyond":      {false, mine(8), span(full, 1<<64-4, 8), devices.ErrRange},
		"other lengths":   {false, span(full, 0, 2), mine(1), devices.ErrRange},
		"without a right": {false, span(reads, 0, 8), mine(8), region.ErrRights},
		"without a key":   {false, span(gone, 0, 8), mine(8), region.ErrKey},
		"both remote":     {false, span(full, 0, 8), span(full, 8, 8), devices.ErrUnsupported},
		"too late":        {true, span(full, 0, 8), mine(8), context.Canceled},
	} {
		ctx := t.Context()
		if c.late {
			ctx = ended
		}
		if path, err := e.Copy(ctx, c.dst, c.src); !errors.Is(err, c.want) {
			t.Errorf("%s: by %q: %v, want %v", name, path, err, c.want)
		}
	}
	if err := e.Fill(t.Context(), span(full, 0, 8), 1); !errors.Is(err, devices.ErrUnsupported) {
		t.Errorf("fill: %v", err)
	}
	if _, err := e.Copy(t.Context(), span(full, 10_000, 0), mine(0)); err != nil {
		t.Errorf("no bytes at the end: %v", err)
	}
	transporttest.Check(t, remote, 0, 10_000, 2, 0)
}

// testRemoteIsCut ends copies in the middle: by the caller, and by the connection. They return,
// and the local memory is not accessed afterwards.
func testRemoteIsCut(t *testing.T, w Way) {
	if w.Beside {
		return
	}
	size := 256 << 20 // the cut comes in the middle, also on a busy machine
	if kit.Race() {
		size /= 5
	}
	t.Run("by the caller", func(t *testing.T) {
		job := w.pair(t)
		remote := job.host(t, 1, devices.Size(size))
		r := job.ranks[0].Remote(1, job.share(t, 1, 0, remote, both))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := r.Fetch(ctx, transport.HostSpan(make([]byte, size)), 0)
			done <- err
		}()
		kit.Eventually(t, patience, func() bool { return len(done) > 0 || job.ranks[0].Table().Stats().Live > 0 })
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		newBystander(t, job, 0, 1).works(t, 3)
	})
	t.Run("by the connection", func(t *testing.T) {
		job := w.open(t, 2, nil)
		by := job.relay(t)
		job.connect(t, 0, 1, by.address())
		remote := job.host(t, 1, devices.Size(size))
		r := job.ranks[0].Remote(1, job.share(t, 1, 0, remote, both))
		before := by.through()
		done := make(chan error, 1)
		go func() {
			_, err := r.Store(context.WithoutCancel(t.Context()), transport.HostSpan(make([]byte, size)), 0)
			done <- err
		}()
		kit.Eventually(t, patience, func() bool { return by.through() > before+1<<20 })
		by.cut()
		if err := <-done; !errors.Is(err, control.ErrDisconnected) {
			t.Error(err)
		}
	})
}
