package fusion

import (
	"fmt"
	"slices"
)

// Reason is the reason why a bucket ends. Its values are used on the wire.
type Reason uint8

// The reasons.
const (
	Bytes Reason = iota + 1
	Full
	Large
	Split
	Window
	Flush
)

// String returns the reason as named in the package comment.
func (r Reason) String() string {
	names := [...]string{Bytes: "bytes", Full: "full", Large: "large", Split: "split", Window: "window", Flush: "flush"}
	if r == 0 || int(r) >= len(names) {
		return fmt.Sprintf("reason %d", uint8(r))
	}
	return names[r]
}

// alignment is the alignment of tensors in a bucket, in bytes.
const alignment = 128

// align returns the next offset for a tensor.
func align(end uint64) uint64 { return (end + alignment - 1) &^ (alignment - 1) }

// limits are the size limits for tensors in buckets. The leader cuts by them, and all ranks
// pack by them before they know of the cut.
type limits struct {
	bytes, capacity uint64
	// split reports that static splits cut, and Bytes does not.
	split bool
}

// alone reports whether a tensor of this size is reduced in place, outside of buffers.
func (l limits) alone(size uint64) bool {
	if l.split {
		return size > l.capacity
	}
	return size > l.bytes
}

// place returns the offset of a tensor in a bucket that ends at end so far; ok is false if
// there is no room for it.
func (l limits) place(end, size uint64) (off uint64, ok bool) {
	off = align(end)
	return off, size <= l.capacity && off <= l.capacity-size
}

// cutter finds the cuts that depend on the tensors only. It has seen those of the open
// bucket.
type cutter struct {
	limits
	// ends is Options.Ends, and step counts the tensors of the current step.
	ends []int
	step int
	// count is the number of tensors in the open bucket, sum their size in bytes, and end
	// the end of the last one in the buffer.
	count    int
	sum, end uint64
}

// add adds the next tensor. before is the reason for a cut before it, after for one after
// it; 0 means no cut.
func (c *cutter) add(size uint64) (before, after Reason) {
	if c.alone(size) {
		if c.count > 0 {
			before = Large
		}
		c.cut()
		c.next()
		return before, Large
	}
	off, ok := c.place(c.end, size)
	if !ok {
		before = Full
		c.cut()
		off = 0
	}
	c.count++
	c.sum += size
	c.end = off + size
	switch ended := c.next(); {
	case ended:
		after = Split
	case !c.split && c.sum >= c.bytes:
		after = Bytes
	default:
		return before, 0
	}
	c.cut()
	return before, after
}

// next advances in the step, and reports whether a static bucket ends.
func (c *cutter) next() bool {
	if !c.split {
		return false
	}
	i := c.step
	c.step++
	if i == c.ends[len(c.ends)-1] {
		c.step = 0
		return true
	}
	return slices.Contains(c.ends, i)
}

// cut begins a new bucket.
func (c *cutter) cut() { c.count, c.sum, c.end = 0, 0, 0 }
