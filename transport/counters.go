package transport

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

// The histogram's bounds grow fourfold from 1 us; the last is 16.8 s.
const (
	firstBound  = time.Microsecond
	boundFactor = 4
	bounds      = 13
)

// counters counts copies. Adding to a row that exists takes no lock.
type counters struct {
	// rows is replaced, never changed, when a row is added. There are few, most of which are
	// compared by the addresses of their names.
	rows atomic.Pointer[[]*row]
	// adding lets one goroutine at a time replace rows.
	adding sync.Mutex
}

type rowKey struct {
	path   Path
	device devices.Name
}

// row holds the counters of one path and device.
type row struct {
	key                              rowKey
	operations, bytes, errors, nanos atomic.Uint64
	latency                          [bounds]atomic.Uint64
}

// find returns a row; nil for none.
func (c *counters) find(key rowKey) *row {
	rows := c.rows.Load()
	if rows == nil {
		return nil
	}
	for _, r := range *rows {
		if r.key == key {
			return r
		}
	}
	return nil
}

func (c *counters) row(key rowKey) *row {
	if r := c.find(key); r != nil {
		return r
	}
	c.adding.Lock()
	defer c.adding.Unlock()
	if r := c.find(key); r != nil {
		return r
	}
	next := []*row{{key: key}}
	if rows := c.rows.Load(); rows != nil {
		next = slices.Concat(*rows, next)
	}
	c.rows.Store(&next)
	return next[len(next)-1]
}

func (c *counters) add(info *CopyInfo) {
	r := c.row(rowKey{info.Path, info.Device})
	if info.Err != nil {
		r.errors.Add(1)
		return
	}
	r.operations.Add(1)
	r.bytes.Add(uint64(info.Bytes))
	r.nanos.Add(uint64(max(info.Duration, 0)))
	if i := bucketOf(info.Duration); i < bounds {
		r.latency[i].Add(1)
	}
}

// bucketOf returns the index of the bucket that counts a duration; bounds for one that is longer than all of them.
func bucketOf(d time.Duration) int {
	i := 0
	for bound := firstBound; i < bounds && d > bound; bound *= boundFactor {
		i++
	}
	return i
}

// sums are counts of copies without an error that are added to a row together.
type sums struct {
	operations, bytes, nanos uint64
	// latency has the copies that are longer than all bounds last, which no bucket counts.
	latency [bounds + 1]uint64
}

func (s *sums) add(n devices.Size, took time.Duration) {
	s.operations++
	s.bytes += uint64(n)
	s.nanos += uint64(max(took, 0))
	s.latency[bucketOf(took)]++
}

func (r *row) addAll(s *sums) {
	r.operations.Add(s.operations)
	r.bytes.Add(s.bytes)
	r.nanos.Add(s.nanos)
	for i, n := range s.latency[:bounds] {
		if n > 0 {
			r.latency[i].Add(n)
		}
	}
}

// snapshot reads each counter once. A copy that ends meanwhile may be included in
// part.
func (c *counters) snapshot() []PathStats {
	out := []PathStats{}
	rows := c.rows.Load()
	if rows == nil {
		return out
	}
	for _, r := range *rows {
		out = append(out, r.snapshot())
	}
	slices.SortFunc(out, func(a, b PathStats) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Device, b.Device))
	})
	return out
}

func (r *row) snapshot() PathStats {
	s := PathStats{
		Path: r.key.path, Device: r.key.device,
		Operations: r.operations.Load(), Bytes: r.bytes.Load(), Errors: r.errors.Load(),
		Seconds: time.Duration(r.nanos.Load()).Seconds(),
		Latency: make([]Bucket, 0, bounds),
	}
	bound, sum := firstBound, uint64(0)
	for i := range r.latency {
		sum += r.latency[i].Load()
		s.Latency = append(s.Latency, Bucket{LE: bound.Seconds(), Count: sum})
		bound *= boundFactor
	}
	return s
}
