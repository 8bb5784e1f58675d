package transport_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

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
	told := 0
	e := newEngine(t, transport.Options{Listener: transport.Listener{Copied: func(i transport.CopyInfo) {
		told++
		if i.Path != transport.PathD2D || i.Device != "host" || i.Peer != "host" {
			t.Errorf("reported: %+v", i)
		}
	}}})
	var b transport.Burst
	if b.Begun() || !b.Begin(e) || !b.Begun() {
		t.Fatal("it does not begin")
	}
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
	if told != int(copies) {
		t.Errorf("%d of %d reported", told, copies)
	}
}

// TestBurstStaysInside refuses ranges that reach behind a mapping, and counts each as a copy that failed.
func TestBurstStaysInside(t *testing.T) {
	a, _ := mapSealed(t, kit.Bytes(5, 0, 8192))
	b, file := mapSealed(t, kit.Bytes(6, 0, 4096))
	e := newEngine(t, transport.Options{})
	var burst transport.Burst
	if !burst.Begin(e) {
		t.Fatal("it does not begin")
	}
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

// TestBurstAndClose has Close wait for the end of a burst, and none begins afterwards.
func TestBurstAndClose(t *testing.T) {
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b, other transport.Burst
	if !b.Begin(e) {
		t.Fatal("it does not begin")
	}
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	for other.Begin(e) { // until Close has begun
		other.End()
	}
	select {
	case err = <-closed:
		t.Fatalf("closed during a burst: %v", err)
	default:
	}
	b.End()
	if err = <-closed; err != nil {
		t.Error(err)
	}
	other.End() // it has not begun
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
