package fs

import (
	"fmt"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestAllocations bounds the allocations of one read and one write of 4 KiB and of 1 MiB,
// through all layers down to the device, at scattered offsets of a file that has its memory.
// sim0 is copied from, sim1 is read in place.
func TestAllocations(t *testing.T) {
	if kit.Race() {
		t.Skip("the race detector allocates")
	}
	const size = 16 << 20
	for _, c := range []struct {
		device      string
		n           int
		read, write float64 // allocations of one request
	}{
		{"sim0", 4 << 10, 3, 3},
		{"sim0", 1 << 20, 6, 3},
		{"sim1", 4 << 10, 7, 7},
		{"sim1", 1 << 20, 9, 7},
	} {
		t.Run(fmt.Sprint(c.device, "/", c.n), func(t *testing.T) {
			r := newRig(t)
			f := r.create(r.root(c.device), "a")
			f.write(pattern(size, 1))
			buf, data := make([]byte, c.n), pattern(c.n, 2)
			count, at := size/c.n, 0
			next := func() uint64 {
				at = (at + count/3) % count // reaches all: a third of a power of two is odd
				return uint64(at * c.n)
			}
			in := &fuse.ReadIn{InHeader: header(f.ino), Fh: f.fh, Size: uint32(c.n)}
			read := func() {
				in.Offset = next()
				result, status := r.Read(nil, in, buf)
				if status != fuse.OK || result.Size() != c.n {
					t.Fatalf("%d bytes, %v", result.Size(), status)
				}
				result.Done()
			}
			out := &fuse.WriteIn{InHeader: header(f.ino), Fh: f.fh, Size: uint32(c.n)}
			write := func() {
				out.Offset = next()
				if n, status := r.Write(nil, out, data); status != fuse.OK || int(n) != c.n {
					t.Fatalf("%d bytes, %v", n, status)
				}
			}
			if got := least(read); got > c.read {
				t.Errorf("a read of %d bytes allocates %v times, at most %v", c.n, got, c.read)
			}
			if got := least(write); got > c.write {
				t.Errorf("a write of %d bytes allocates %v times, at most %v", c.n, got, c.write)
			}
		})
	}
}

// least returns the fewest allocations of several measurements: other goroutines allocate
// too.
func least(run func()) float64 {
	best := testing.AllocsPerRun(50, run)
	for range 4 {
		best = min(best, testing.AllocsPerRun(50, run))
	}
	return best
}
