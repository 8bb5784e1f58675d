package transport_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

// mapSealed maps new memory with the bytes of content.
func mapSealed(t testing.TB, content []byte) (*transport.Mapping, *os.File) {
	t.Helper()
	f := transporttest.SealedFile(t, content)
	m, err := new(transport.Mappings).Map(f, devices.Size(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Release(); err != nil {
			t.Error(err)
		}
	})
	return m, f
}

// TestBurst copies pieces of several sizes, over themselves too, and compares the bytes and the counters with those of single
// copies: each piece counts, with a time, and each is reported.
func TestBurst(t *testing.T) {
	const size = 1 << 20
	from, want := kit.Bytes(3, 0, size), kit.Bytes(4, 0, size)
	src, _ := mapSealed(t, from)
	dst, file := mapSealed(t, want)
	var told []transport.CopyInfo
	e := newEngine(t, transport.Options{Listener: transport.Listener{Copied: func(i transport.CopyInfo) {
		told = append(told, i)
		if i.Path != transport.PathD2D || i.Device != "host" || i.Peer != "host" {
			t.Errorf("reported: %+v", i)
		}
	}}})
	var b transport.Burst
	if b.Begun() {
		t.Error("begun before Begin")
	}
	b.Begin(e)
	moved, copies := uint64(0), uint64(0)
	for i, n := range []uint64{1, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 70_000, 70_000, 5, 4096, 0} {
		off, at := uint64(i)*31_337%(size-n), uint64(i)*77_773%(size-n)
		if err := b.Copy("host", dst, at, src, off, n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			copy(want[at:at+n], from[off:off+n])
			moved, copies = moved+n, copies+1
		}
	}
	for _, to := range []uint64{100, 300} {
		if err := b.Copy("host", dst, to, dst, 200, 50_000); err != nil {
			t.Fatal(err)
		}
		copy(want[to:to+50_000], want[200:50_200])
		moved, copies = moved+50_000, copies+1
	}
	b.End()
	b.End()
	got, err := io.ReadAll(io.NewSectionReader(file, 0, size))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the bytes differ, %v", err)
	}
	paths := e.Stats().Paths
	if len(paths) != 1 {
		t.Fatalf("counted: %+v", paths)
	}
	p := paths[0]
	last := p.Latency[len(p.Latency)-1].Count
	if p.Path != transport.PathD2D || p.Device != "host" || p.Operations != copies || p.Bytes != moved || last != copies || p.Seconds <= 0 {
		t.Errorf("%d copies of %d bytes are counted as %+v", copies, moved, p)
	}
	if len(told) != int(copies) {
		t.Errorf("%d of %d reported", len(told), copies)
	}
}

// TestBurstMeasuresSome makes small copies, most of which have the time of another one, and copies that do not: large ones, and those of
// another size than the one before.
func TestBurstMeasuresSome(t *testing.T) {
	m, _ := mapSealed(t, kit.Bytes(8, 0, 1<<20))
	var took []time.Duration
	e := newEngine(t, transport.Options{Listener: transport.Listener{Copied: func(i transport.CopyInfo) { took = append(took, i.Duration) }}})
	var b transport.Burst
	b.Begin(e)
	defer b.End()
	// alike returns how many copies are in sequences of eight with the same time.
	alike := func(sizes ...uint64) (n int) {
		took = nil
		for _, size := range sizes {
			if err := b.Copy("host", m, 0, m, 1<<19, size); err != nil {
				t.Fatal(err)
			}
		}
		for from, i := 0, 0; i <= len(took); i++ {
			if i == len(took) || took[i] != took[from] {
				if i-from >= 8 {
					n += i - from
				}
				from = i
			}
		}
		return n
	}
	if n := alike(slices.Repeat([]uint64{4096}, 800)...); n < 200 {
		t.Errorf("%d of 800 small copies have the time of another one", n)
	}
	if n := alike(slices.Repeat([]uint64{100_000}, 200)...); n > 0 {
		t.Errorf("%d of 200 large copies have the time of another one", n)
	}
	if n := alike(slices.Repeat([]uint64{30_000, 60_000}, 100)...); n > 0 {
		t.Errorf("%d of 200 copies of two sizes have the time of another one", n)
	}
}

// TestBurstWithinOneFile copies between two mappings of one file, whose overlap their addresses do not show, in both directions.
func TestBurstWithinOneFile(t *testing.T) {
	want := kit.Bytes(9, 0, 65536)
	a, f := mapSealed(t, want)
	again, err := new(transport.Mappings).Map(f, 65536)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Release() }()
	var b transport.Burst
	b.Begin(newEngine(t, transport.Options{}))
	defer b.End()
	for _, c := range []struct {
		dst, src *transport.Mapping
		to, from uint64
	}{{a, again, 1000, 500}, {again, a, 1000, 500}, {a, again, 20_000, 20_500}, {again, a, 20_000, 20_500}, {a, again, 0, 60_000}} {
		const n = 5000
		if err = b.Copy("host", c.dst, c.to, c.src, c.from, n); err != nil {
			t.Fatal(err)
		}
		copy(want[c.to:c.to+n], want[c.from:c.from+n])
		if got, err := io.ReadAll(io.NewSectionReader(f, 0, 65536)); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("from %d to %d: other bytes, %v", c.from, c.to, err)
		}
	}
}

// TestBurstStaysInside refuses ranges that reach behind a mapping, and counts each as a copy that failed.
func TestBurstStaysInside(t *testing.T) {
	a, _ := mapSealed(t, kit.Bytes(5, 0, 8192))
	b, file := mapSealed(t, kit.Bytes(6, 0, 4096))
	e := newEngine(t, transport.Options{})
	var burst transport.Burst
	burst.Begin(e)
	defer burst.End()
	wrong := []struct{ to, from, n uint64 }{{0, 8192, 1}, {4096, 0, 1}, {1, 0, 4096}, {0, 1, 8192}, {0, 1<<64 - 1, 2}, {1<<64 - 4096, 0, 8192}}
	for _, c := range wrong {
		if err := burst.Copy("host", b, c.to, a, c.from, c.n); !errors.Is(err, devices.ErrRange) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if p := e.Stats().Paths; len(p) != 1 || p[0].Errors != uint64(len(wrong)) || p[0].Operations != 0 {
		t.Errorf("counted: %+v", p)
	}
	got, err := io.ReadAll(file)
	if err != nil || !bytes.Equal(got, kit.Bytes(6, 0, 4096)) {
		t.Errorf("bytes were changed, %v", err)
	}
}

// TestBurstAfterClose closes an engine during a burst: it does not wait for the end of that, and nothing is copied afterwards.
func TestBurstAfterClose(t *testing.T) {
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := kit.Bytes(10, 0, 8192)
	m, f := mapSealed(t, want)
	var b transport.Burst
	b.Begin(e)
	if err = e.Close(); err != nil {
		t.Fatal(err)
	}
	if err = b.Copy("host", m, 0, m, 4096, 4096); !errors.Is(err, devices.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	b.End()
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, want) {
		t.Errorf("bytes were changed, %v", err)
	}
}

// TestBurstAllocations keeps a burst free of allocations.
func TestBurstAllocations(t *testing.T) {
	if kit.Race() {
		t.Skip("the race detector allocates")
	}
	m, _ := mapSealed(t, kit.Bytes(7, 0, 8192))
	e := newEngine(t, transport.Options{})
	var b transport.Burst
	got := testing.AllocsPerRun(100, func() {
		b.Begin(e)
		for range 20 {
			if err := b.Copy("host", m, 0, m, 4096, 4096); err != nil {
				t.Fatal(err)
			}
		}
		b.End()
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}
