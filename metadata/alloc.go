package metadata

import (
	"sync"
	"sync/atomic"
)

const (
	// inoBatch is the number of inode numbers reserved in the KV at a time. Each run of the program wastes
	// at most this many and inosAhead more.
	inoBatch = 1 << 16
	// inosAhead is the number of free ones at which the next batch is reserved in the background. Reserving is a
	// change that must survive the process, so it writes all that was changed before: no caller waits for that
	// unless it is the first, or the others use up the rest meanwhile.
	inosAhead = inoBatch / 2
)

// allocator assigns inode numbers, each once. The numbers from next up to limit, exclusive,
// are free, and limit has been stored.
type allocator struct {
	next  atomic.Uint64
	limit atomic.Uint64
	mu    sync.Mutex     // held while a batch is reserved
	ahead sync.WaitGroup // the reservations in the background
}

// start sets the first free number, with an empty batch.
func (a *allocator) start(next Ino) {
	a.next.Store(uint64(next))
	a.limit.Store(uint64(next))
}

// take returns a free number if there is one. few is set for one number of each batch, after which it is time to
// reserve the next.
func (a *allocator) take() (ino Ino, few, ok bool) {
	for {
		n, limit := a.next.Load(), a.limit.Load()
		if n >= limit {
			return 0, false, false
		}
		if a.next.CompareAndSwap(n, n+1) {
			return Ino(n), limit-n == inosAhead, true
		}
	}
}
