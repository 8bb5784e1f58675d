package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/transport"
)

// maxSlices bounds the pieces of one answer: the kernel accepts 1024 in one writev, two of
// which are go-fuse's.
const maxSlices = 512

// nothing returns an answer of no bytes. It must not be a sliceResult: go-fuse does not
// call Done on an empty one.
func nothing() fuse.ReadResult { return fuse.ReadResultData(nil) }

// sliceResult passes bytes to the kernel without copying. go-fuse writes its Slices with
// one writev and then calls Done.
type sliceResult struct {
	slices [][]byte
	n      int

	// Done releases the following; each may be unset.
	views  func()
	chunks []*chunk
	slot   *transport.Slot
}

var _ fuse.ReadResult = (*sliceResult)(nil)

// Slices returns the bytes in order, the same ones each time.
func (r *sliceResult) Slices() ([][]byte, fuse.Status) { return r.slices, fuse.OK }

// Bytes copies the bytes into buf, for code of go-fuse that does not use Slices.
func (r *sliceResult) Bytes(buf []byte) ([]byte, fuse.Status) {
	if cap(buf) < r.n {
		buf = make([]byte, 0, r.n)
	}
	buf = buf[:0]
	for _, s := range r.slices {
		buf = append(buf, s...)
	}
	return buf, fuse.OK
}

// Size returns the number of bytes.
func (r *sliceResult) Size() int { return r.n }

// Done releases the bytes.
func (r *sliceResult) Done() {
	if r.views != nil {
		r.views()
		r.views = nil
	}
	for _, c := range r.chunks {
		c.unref()
	}
	r.chunks = nil
	if r.slot != nil {
		r.slot.Release()
		r.slot = nil
	}
}

func (r *sliceResult) add(p []byte) {
	if len(p) > 0 {
		r.slices = append(r.slices, p)
		r.n += len(p)
	}
}

// finish returns the result, or nothing when it has no bytes.
func (r *sliceResult) finish() fuse.ReadResult {
	if r.n > 0 {
		return r
	}
	r.Done()
	return nothing()
}
