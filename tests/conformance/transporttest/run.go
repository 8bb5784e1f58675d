package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// Pair is two ends and the engine that connects them.
type Pair struct {
	Engine *transport.Engine
	// Chunk is the engine's chunk size, for sizes around it.
	Chunk    devices.Size
	Dst, Src End
	// Path is the path that every copy from Src to Dst takes.
	Path transport.Path
	// Device is the device for which the engine counts those copies.
	Device devices.Name
	// SameEnd reports whether Dst and Src are the same place, where spans may overlap.
	SameEnd bool
}

// margin is the number of bytes on each side of a destination that must not change.
const margin = 77

// Run runs the suite. open creates a fresh pair for each case, and closes it in t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Pair) {
	t.Helper()
	cases := []struct {
		name string
		run  func(t *testing.T, p Pair)
	}{
		{"Sizes", testSizes},
		{"Lengths", testLengths},
		{"Overlap", testOverlap},
		{"Cancelled", testCancelled},
		{"CancelInTheMiddle", testCancelInTheMiddle},
		{"Concurrent", testConcurrent},
		{"Counters", testCounters},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := open(t)
			c.run(t, p)
			if used := p.Engine.Stats().PinnedInUse; used != 0 {
				t.Errorf("%v of slots still held at the end", used)
			}
		})
	}
}

// Pattern returns n bytes that depend on their position and on the seed, so that no two parts
// are equal.
func Pattern(seed uint64, n int) []byte {
	p := make([]byte, n)
	stream := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
	_, _ = stream.Read(p)
	return p
}

// copyOnce copies n bytes between fresh stretches at odd offsets and checks every byte,
// including those around the destination.
func copyOnce(t *testing.T, p Pair, seed uint64, n, dstOff, srcOff int) {
	t.Helper()
	from, want := Pattern(seed, srcOff+n+margin), Pattern(seed+1000, dstOff+n+margin)
	src, dst := p.Src.Make(t, from), p.Dst.Make(t, want)
	path, err := p.Engine.Copy(t.Context(), dst.Span(t, dstOff, n), src.Span(t, srcOff, n))
	if err != nil {
		t.Errorf("copy %d bytes: %v", n, err)
		return
	}
	if wantPath := p.Path; n > 0 && path != wantPath {
		t.Errorf("copy of %d bytes took %q, want %q", n, path, wantPath)
	}
	if n == 0 && path != "" {
		t.Errorf("copy of nothing took %q", path)
	}
	copy(want[dstOff:dstOff+n], from[srcOff:srcOff+n])
	same(t, "destination", dst.Read(t), want)
	same(t, "source", src.Read(t), from)
}

func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	if len(got) != len(want) {
		t.Errorf("%s is %d bytes, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s differs from byte %d of %d on: %#x, want %#x", what, i, len(got), got[i], want[i])
			return
		}
	}
}

func testSizes(t *testing.T, p Pair) {
	chunk := int(p.Chunk)
	for i, n := range []int{0, 1, 4095, 4096, chunk - 1, chunk, chunk + 1, 3*chunk + 17, 9*chunk + 4096} {
		copyOnce(t, p, uint64(i), n, 0, 0)
		copyOnce(t, p, uint64(i), n, 13, 4099)
		copyOnce(t, p, uint64(i), n, 4096, 1)
	}
}

func testLengths(t *testing.T, p Pair) {
	before := Pattern(2, 200)
	src, dst := p.Src.Make(t, Pattern(1, 200)), p.Dst.Make(t, before)
	_, err := p.Engine.Copy(t.Context(), dst.Span(t, 0, 100), src.Span(t, 0, 101))
	if !errors.Is(err, devices.ErrRange) {
		t.Errorf("copy of 101 bytes into 100: %v, want %v", err, devices.ErrRange)
	}
	same(t, "destination", dst.Read(t), before)
}

func testOverlap(t *testing.T, p Pair) {
	if !p.SameEnd {
		t.Skip("two places can't overlap")
	}
	chunk := int(p.Chunk)
	n := 3*chunk + 17
	for _, shift := range []int{0, 1, 4096, chunk - 1, chunk, chunk + 1, 2*chunk + 5, n - 1, n} {
		for _, up := range []bool{true, false} {
			t.Run(fmt.Sprintf("by=%d/up=%t", shift, up), func(t *testing.T) {
				dstOff, srcOff := margin+shift, margin
				if !up {
					dstOff, srcOff = srcOff, dstOff
				}
				want := Pattern(uint64(shift), margin+shift+n+margin)
				both := p.Src.Make(t, want)
				path, err := p.Engine.Copy(t.Context(), both.Span(t, dstOff, n), both.Span(t, srcOff, n))
				if err != nil || path != p.Path {
					t.Fatalf("path %q, error %v; want %q", path, err, p.Path)
				}
				copy(want[dstOff:dstOff+n], want[srcOff:srcOff+n])
				same(t, "memory", both.Read(t), want)
			})
		}
	}
}

func testCancelled(t *testing.T, p Pair) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := 2 * int(p.Chunk)
	before := Pattern(2, n)
	src, dst := p.Src.Make(t, Pattern(1, n)), p.Dst.Make(t, before)
	if _, err := p.Engine.Copy(ctx, dst.Span(t, 0, n), src.Span(t, 0, n)); !errors.Is(err, context.Canceled) {
		t.Errorf("copy after cancel: %v, want %v", err, context.Canceled)
	}
	same(t, "destination", dst.Read(t), before)
}

// testCancelInTheMiddle cancels at some moment of the copy. The copy either completes or returns
// the cancellation, and changes nothing around its destination.
func testCancelInTheMiddle(t *testing.T, p Pair) {
	n := 40 * int(p.Chunk)
	from, before := Pattern(1, n), Pattern(2, margin+n+margin)
	src := p.Src.Make(t, from)
	for range 5 {
		dst := p.Dst.Make(t, before)
		ctx, cancel := context.WithCancel(t.Context())
		var canceller sync.WaitGroup
		canceller.Go(cancel)
		_, err := p.Engine.Copy(ctx, dst.Span(t, margin, n), src.Span(t, 0, n))
		canceller.Wait()
		got := dst.Read(t)
		switch {
		case err == nil:
			same(t, "destination", got[margin:margin+n], from)
		case !errors.Is(err, context.Canceled):
			t.Errorf("copy while cancelled: %v, want %v", err, context.Canceled)
		}
		same(t, "bytes before", got[:margin], before[:margin])
		same(t, "bytes behind", got[margin+n:], before[margin+n:])
	}
}

func testConcurrent(t *testing.T, p Pair) {
	n := 5*int(p.Chunk) + 3
	const copies = 8
	src, dst := p.Src.Make(t, Pattern(1, copies*n)), p.Dst.Make(t, Pattern(2, copies*n))
	var all sync.WaitGroup
	for i := range copies {
		// Each copy reverses the order of the parts.
		to, from := dst.Span(t, i*n, n), src.Span(t, (copies-1-i)*n, n)
		all.Go(func() {
			if path, err := p.Engine.Copy(t.Context(), to, from); err != nil || path != p.Path {
				t.Errorf("path %q, error %v; want %q", path, err, p.Path)
			}
		})
	}
	all.Wait()
	from := Pattern(1, copies*n)
	var want []byte
	for i := range copies {
		want = append(want, from[(copies-1-i)*n:(copies-i)*n]...)
	}
	same(t, "destination", dst.Read(t), want)
}

func testCounters(t *testing.T, p Pair) {
	before := p.Engine.Stats()
	sizes := []int{1, 4096, int(p.Chunk) + 1, 0}
	sum := 0
	for i, n := range sizes {
		copyOnce(t, p, uint64(i), n, 3, 5)
		sum += n
	}
	after := p.Engine.Stats()
	got, was := rowOf(after, p), rowOf(before, p)
	if ops := got.Operations - was.Operations; ops != 3 {
		t.Errorf("%d operations counted for %s of %s, want 3", ops, p.Path, p.Device)
	}
	if n := got.Bytes - was.Bytes; n != uint64(sum) {
		t.Errorf("%d bytes counted for %s of %s, want %d", n, p.Path, p.Device, sum)
	}
	if got.Errors != was.Errors || got.Seconds <= was.Seconds {
		t.Errorf("errors %d after %d, seconds %g after %g", got.Errors, was.Errors, got.Seconds, was.Seconds)
	}
	if a, b := total(after), total(before); a-b != uint64(sum) {
		t.Errorf("all paths together count %d bytes, want %d", a-b, sum)
	}
}

func rowOf(s transport.Stats, p Pair) transport.PathStats {
	for _, row := range s.Paths {
		if row.Path == p.Path && row.Device == p.Device {
			return row
		}
	}
	return transport.PathStats{}
}

func total(s transport.Stats) uint64 {
	var n uint64
	for _, row := range s.Paths {
		n += row.Bytes
	}
	return n
}
