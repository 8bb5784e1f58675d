package metadata

import (
	"sync"
	"sync/atomic"
)

// inoBatch is the number of inode numbers reserved in the KV at a time. Each run of the program wastes
// at most this many. Reserving is a change that must survive the process, for which a caller waits.
const inoBatch = 1 << 16

// allocator assigns inode numbers, each once. The numbers from next up to limit, exclusive,
// are free, and limit has been stored.
type allocator struct {
	next  atomic.Uint64
	limit atomic.Uint64
	mu    sync.Mutex // held while a batch is reserved
}

// start sets the first free number, with an empty batch.
func (a *allocator) start(next Ino) {
	a.next.Store(uint64(next))
	a.limit.Store(uint64(next))
}

// take returns a free number if the batch has one.
func (a *allocator) take() (Ino, bool) {
	for {
		n := a.next.Load()
		if n >= a.limit.Load() {
			return 0, false
		}
		if a.next.CompareAndSwap(n, n+1) {
			return Ino(n), true
		}
	}
}
