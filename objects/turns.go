package objects

import (
	"context"
	"slices"
	"sync"
)

// turns has those take turns who read some files whole and replace others: each
// finds the files as the one before has left them. Who reads or writes a single
// file has no part in it.
type turns struct {
	mu sync.Mutex
	// queue has those who have their turn, and those who wait, as they came.
	// +checklocks:mu
	queue []*turn
}

// turn is one of them.
type turn struct {
	reads, writes []Ino
	// begun is closed when it has come.
	begun chan struct{}
	// on says that it has come.
	on bool
}

// take is Store.TakeTurn.
func (q *turns) take(ctx context.Context, reads, writes []Ino) (done func(), err error) {

	t := &turn{reads: reads, writes: writes, begun: make(chan struct{})}
	q.mu.Lock()
	q.queue = append(q.queue, t)
	q.grantLocked()
	q.mu.Unlock()
	select {
	case <-t.begun:
		return func() { q.end(t) }, nil
	case <-ctx.Done():
		q.end(t) // it may have come just now
		return nil, ctx.Err()
	}
}

func (q *turns) end(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = slices.DeleteFunc(q.queue, func(other *turn) bool { return other == t })
	q.grantLocked()
}

// grantLocked begins the turns of those who have nobody before them that they
// must not meet.
//
// +checklocks:q.mu
func (q *turns) grantLocked() {
	for i, t := range q.queue {
		if t.on || slices.ContainsFunc(q.queue[:i], t.meets) {
			continue
		}
		t.on = true
		close(t.begun)
	}
}

// meets says whether two must not have their turns at the same time.
func (t *turn) meets(other *turn) bool {
	return touches(t.writes, other.reads) || touches(t.writes, other.writes) || touches(t.reads, other.writes)
}

func touches(a, b []Ino) bool {
	return slices.ContainsFunc(a, func(ino Ino) bool { return slices.Contains(b, ino) })
}
