package shm

import (
	"sync/atomic"
	"unsafe"
)

// layout is the memory of a ring. Each number that one side writes and the other
// reads has a cache line of its own.
type layout struct {
	// head counts the tags that were sent.
	head atomic.Uint64
	_    [56]byte
	// tail counts the tags that were received.
	tail atomic.Uint64
	_    [56]byte
	// sleeping is 1 while the receiver sleeps, or is about to.
	sleeping atomic.Uint32
	_        [60]byte
	// waiting is 1 while the sender waits for room, or is about to.
	waiting atomic.Uint32
	_       [60]byte
	slots   [slots]atomic.Uint64
}

// layoutSize is the size of a layout, in bytes.
const layoutSize = int(unsafe.Sizeof(layout{}))

// layoutAt returns the start of a mapping as a ring.
//
// Preconditions: it has layoutSize bytes, and starts at a page boundary.
func layoutAt(p []byte) *layout { return (*layout)(unsafe.Pointer(unsafe.SliceData(p))) }
