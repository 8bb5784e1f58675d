package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

// Sizes of the pieces into which large moves are divided, so that each piece ends long before
// its deadline, whatever the network.
const (
	firstPiece = uint64(8 * devices.MiB)
	leastPiece = uint64(devices.MiB)
	mostPiece  = uint64(64 * devices.MiB)
	// A piece should take between quick and slow.
	quick = 200 * time.Millisecond
	slow  = time.Second
)

// pace determines the size of the pieces of one node's moves. The zero value is ready for use.
type pace struct{ bytes atomic.Uint64 }

// piece returns the size of the next piece, in bytes.
func (p *pace) piece() uint64 {
	if n := p.bytes.Load(); n != 0 {
		return n
	}
	return firstPiece
}

// took records how long a piece of n bytes took.
func (p *pace) took(n uint64, d time.Duration) {
	now := p.piece()
	switch {
	case d > slow:
		p.bytes.Store(max(now/2, leastPiece))
	case d < quick && n >= now:
		p.bytes.Store(min(now*2, mostPiece))
	}
}

// cut is a move that several workers carry out in pieces.
type cut struct {
	mu sync.Mutex
	// next is the offset at which the next piece starts.
	// +checklocks:mu
	next uint64
	// end is the offset at which the move ends: everything before next is done or in progress.
	// +checklocks:mu
	end uint64
	// +checklocks:mu
	failure error
}

// inPieces moves n bytes, with workers pieces in progress at a time, and returns the number of
// bytes moved contiguously from the beginning: fewer than n if a move was short, or failed.
func inPieces(ctx context.Context, n uint64, workers int, size func() uint64, move func(ctx context.Context, off, n uint64) (uint64, error)) (uint64, error) {
	c := &cut{end: n}
	work := func() {
		for {
			off, k := c.take(size())
			if k == 0 {
				return
			}
			got, err := move(ctx, off, k)
			if got < k || err != nil {
				c.stop(off+got, err)
			}
		}
	}
	var others sync.WaitGroup
	if first := size(); n > first {
		for range min(uint64(workers), (n+first-1)/first) - 1 {
			others.Go(work)
		}
	}
	work()
	others.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end, c.failure
}

// take returns the next piece; n is 0 if there is none.
func (c *cut) take(size uint64) (off, n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next >= c.end {
		return 0, 0
	}
	off, n = c.next, min(size, c.end-c.next)
	c.next += n
	return off, n
}

// stop ends the move at an offset, unless it ends before that.
func (c *cut) stop(at uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at < c.end || at == c.end && c.failure == nil {
		c.end, c.failure = at, err
	}
}
