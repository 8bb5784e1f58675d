package fabric

import (
	"errors"
	"sync/atomic"
)

const (
	// maxRing bounds the bytes that one direction of a ring holds: few enough to stay in
	// the cache of the processors that copy in and out.
	maxRing = 256 << 10
	// minRing is the smallest size of one direction of a ring.
	minRing = 16 << 10
	// maxRings bounds the total size of the rings to one rank, unless they have the
	// smallest size.
	maxRings = 4 << 20
)

// ringSize returns the size, in bytes, of each ring among n ranks: a power of two.
func ringSize(n int) int {
	size := maxRing
	for size > minRing && size*(n-1) > maxRings {
		size /= 2
	}
	return size
}

// errRing reports a ring whose counters are inconsistent.
var errRing = errors.New("the counters of the ring are inconsistent")

// errEnded reports that the other side has closed the link.
var errEnded = errors.New("the peer has closed the link")

// flow holds the counters of a ring. Each number that one side writes and the other reads
// has a cache line of its own. The memory may be writable by the peer.
type flow struct {
	// head counts the bytes that were put in. ended is set after the last one.
	head  atomic.Uint64
	ended atomic.Uint32
	_     [52]byte
	// tail counts the bytes that were taken out.
	tail atomic.Uint64
	_    [56]byte
}

// pipe is the memory of one direction of a ring.
type pipe struct {
	flow *flow
	// data has a length that is a power of two.
	data []byte
}

// reset empties the ring, which nobody may be using.
func (p pipe) reset() {
	p.flow.head.Store(0)
	p.flow.tail.Store(0)
	p.flow.ended.Store(0)
}

// outlet is the sending end of a ring.
type outlet struct {
	pipe
	// head is our own, tail the last value read from the other side. The peer can change
	// neither.
	head, tail uint64
}

// room returns the number of bytes that fit now.
func (o *outlet) room() (int, error) {
	size := uint64(len(o.data))
	if o.head-o.tail == size {
		o.tail = o.flow.tail.Load()
	}
	if used := o.head - o.tail; used <= size {
		return int(size - used), nil
	}
	return 0, errRing
}

// send puts in as much of head and then body as fits.
func (o *outlet) send(head, body []byte) (int, error) {
	size := uint64(len(o.data))
	if used := o.head - o.tail; used > size/2 || used+uint64(len(head)+len(body)) > size {
		o.tail = o.flow.tail.Load()
	}
	used := o.head - o.tail
	if used > size {
		return 0, errRing
	}
	left := int(size - used)
	n := o.put(head[:min(len(head), left)], o.head)
	if n == len(head) {
		n += o.put(body[:min(len(body), left-n)], o.head+uint64(n))
	}
	if n > 0 {
		o.head += uint64(n)
		o.flow.head.Store(o.head)
	}
	return n, nil
}

// put copies p to position at of the ring, where there must be room.
func (o *outlet) put(p []byte, at uint64) int {
	from := at & uint64(len(o.data)-1)
	n := copy(o.data[from:], p)
	return n + copy(o.data, p[n:])
}

// inlet is the receiving end of a ring.
type inlet struct {
	pipe
	// tail is our own, head the last value read from the other side.
	tail, head uint64
}

// filled returns the number of bytes that can be taken out now.
func (i *inlet) filled() (int, error) {
	if i.head == i.tail {
		i.head = i.flow.head.Load()
	}
	n := i.head - i.tail
	if n > uint64(len(i.data)) {
		return 0, errRing
	}
	return int(n), nil
}

// receive takes out the available bytes, up to the length of p.
func (i *inlet) receive(p []byte) (int, error) {
	if i.head-i.tail < uint64(len(p)) {
		i.head = i.flow.head.Load()
	}
	there := i.head - i.tail
	if there > uint64(len(i.data)) {
		return 0, errRing
	}
	p = p[:min(uint64(len(p)), there)]
	from := i.tail & uint64(len(i.data)-1)
	n := copy(p, i.data[from:])
	copy(p[n:], i.data)
	if len(p) > 0 {
		i.tail += uint64(len(p))
		i.flow.tail.Store(i.tail)
	}
	return len(p), nil
}
