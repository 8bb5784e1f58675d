package fabric

import (
	"errors"
	"sync/atomic"
)

const (
	// maxRing is the most bytes that one direction of a ring holds: few enough to
	// stay in the cache of the processors that copy in and out.
	maxRing = 256 << 10
	// minRing is the fewest.
	minRing = 16 << 10
	// maxRings is the most bytes of the rings to one rank, unless they are of
	// the fewest.
	maxRings = 4 << 20
)

// ringSize is the bytes of each ring where there are n ranks: a power of two.
func ringSize(n int) int {
	size := maxRing
	for size > minRing && size*(n-1) > maxRings {
		size /= 2
	}
	return size
}

// errRing is a ring whose counters can't be.
var errRing = errors.New("the counters of the ring are wrong")

// errEnded is a link that the other side has closed.
var errEnded = errors.New("the peer has closed it")

// flow is the counters of a ring. Each number that one side writes and the other
// one reads has a cache line of its own. It may lie in memory that a peer can
// write.
type flow struct {
	// head counts the bytes that were put in. ended is set behind the last.
	head  atomic.Uint64
	ended atomic.Uint32
	_     [52]byte
	// tail counts the bytes that were taken out.
	tail atomic.Uint64
	_    [56]byte
}

// outlet is the sending end of a ring.
type outlet struct {
	flow *flow
	// data has a length that is a power of two.
	data []byte
	// head is ours, tail what we have seen of the other side's: both are numbers
	// that the peer can't change.
	head, tail uint64
}

// room is the bytes that fit now.
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

// send puts in what fits of head and then body.
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

// put copies p to a place of the ring, where there is room.
func (o *outlet) put(p []byte, at uint64) int {
	from := at & uint64(len(o.data)-1)
	n := copy(o.data[from:], p)
	return n + copy(o.data, p[n:])
}

// inlet is the receiving end of a ring.
type inlet struct {
	flow *flow
	data []byte
	// tail is ours, head what we have seen of the other side's.
	tail, head uint64
}

// filled is the bytes that can be taken out now.
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

// receive takes out what is there, up to the length of p.
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
