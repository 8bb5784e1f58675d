package objects

import (
	"context"
	"sync"
	"sync/atomic"
)

// memo caches results for inodes as long as their stamps don't change. It is bounded:
// the least recently used result is dropped first. The zero memo is empty and ready for
// use.
type memo[T any] struct {
	mu sync.Mutex
	// +checklocks:mu
	of map[Ino]*memoized[T]
	// bytes is the memory of all results.
	// +checklocks:mu
	bytes uint64
	// clock counts the calls of get.
	// +checklocks:mu
	clock uint64
	// count is len(of), readable without the lock.
	count atomic.Int64
}

// memoized is one cached result. The function that computes it fills in the first
// fields.
type memoized[T any] struct {
	value T
	err   error
	// memory is the approximate size of the value, in bytes.
	memory uint64
	// keep reports that the result is valid until the stamp changes.
	keep bool

	stamp stamp
	// used is the clock at the last use, protected by memo.mu.
	used uint64
	// done is closed when value and err are set.
	done chan struct{}
}

// get returns the result for an inode with the given stamp, or computes it with find;
// concurrent callers wait for that.
func (m *memo[T]) get(ctx context.Context, ino Ino, now stamp, find func() memoized[T]) (value T, err error) {
	m.mu.Lock()
	m.clock++
	e := m.of[ino]
	if e != nil && e.stamp == now {
		e.used = m.clock
		m.mu.Unlock()
		select {
		case <-e.done:
			return e.value, e.err
		case <-ctx.Done():
			return value, ctx.Err()
		}
	}
	m.dropLocked(ino)
	e = &memoized[T]{stamp: now, used: m.clock, done: make(chan struct{}), err: context.Canceled}
	if m.of == nil {
		m.of = map[Ino]*memoized[T]{}
	}
	m.of[ino] = e
	m.count.Add(1)
	m.mu.Unlock()

	defer close(e.done)
	found := find()
	e.value, e.err, e.keep = found.value, found.err, found.keep
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.of[ino] != e: // forgotten, or replaced for another stamp meanwhile
	case !found.keep:
		m.dropLocked(ino)
	default:
		e.memory = found.memory
		m.bytes += found.memory
		m.evictLocked(ino)
	}
	return e.value, e.err
}

// evictLocked drops the least recently used results until the rest is within bounds,
// but not the one of the inode kept.
//
// +checklocks:m.mu
func (m *memo[T]) evictLocked(kept Ino) {
	for len(m.of) > maxHeaders || m.bytes > maxHeaderBytes {
		oldest, found := kept, false
		for ino, e := range m.of {
			if ino != kept && e.keep && (!found || e.used < m.of[oldest].used) {
				oldest, found = ino, true
			}
		}
		if !found {
			return
		}
		m.dropLocked(oldest)
	}
}

// +checklocks:m.mu
func (m *memo[T]) dropLocked(ino Ino) {
	if e := m.of[ino]; e != nil {
		m.bytes -= e.memory
		delete(m.of, ino)
		m.count.Add(-1)
	}
}

// forget drops the result for an inode.
func (m *memo[T]) forget(ino Ino) {
	if m.count.Load() == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropLocked(ino)
}
