package fs

import (
	"maps"
	"sync"
	"sync/atomic"
)

// tableShards is the number of parts of a table, each with a lock of its own, so that
// requests on different handles do not contend.
const tableShards = 16

// table assigns numbers to handles. A number is used only once in the life of a mount, and
// a number that the table does not know is refused: a number sent by the kernel or by a
// forger is never followed as a pointer. The zero table is empty and ready for use.
type table[T any] struct {
	last   atomic.Uint64
	shards [tableShards]shard[T]
}

type shard[T any] struct {
	mu sync.RWMutex
	// +checklocks:mu
	handles map[uint64]T
	_       [32]byte // keeps the locks on different cache lines
}

func (t *table[T]) shard(id uint64) *shard[T] { return &t.shards[id%tableShards] }

// put stores a handle and returns its number, which is never 0.
func (t *table[T]) put(h T) uint64 {
	id := t.last.Add(1)
	t.set(id, h)
	return id
}

// set stores a handle under a number that put has returned, perhaps to another process.
func (t *table[T]) set(id uint64, h T) {
	s := t.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handles == nil {
		s.handles = make(map[uint64]T)
	}
	s.handles[id] = h
}

func (t *table[T]) get(id uint64) (T, bool) {
	s := t.shard(id)
	s.mu.RLock()
	h, ok := s.handles[id]
	s.mu.RUnlock()
	return h, ok
}

func (t *table[T]) take(id uint64) (T, bool) {
	s := t.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.handles[id]
	delete(s.handles, id)
	return h, ok
}

func (t *table[T]) len() int {
	n := 0
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		n += len(s.handles)
		s.mu.RUnlock()
	}
	return n
}

// all returns the handles, keyed by number.
func (t *table[T]) all() map[uint64]T {
	all := map[uint64]T{}
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		maps.Copy(all, s.handles)
		s.mu.RUnlock()
	}
	return all
}

// drain removes all handles and returns them, keyed by number. No handles are put meanwhile.
func (t *table[T]) drain() map[uint64]T {
	all := t.all()
	for id := range all {
		t.take(id)
	}
	return all
}
