package objects

import (
	"context"
	"slices"
	"sync"
)

// turns orders operations that read some files whole and replace others: each finds the
// files as the previous one has left them. Reads and writes of a single file don't take
// part.
type turns struct {
	mu sync.Mutex
	// queue has the turns that are running, and those that wait, in the order of the calls.
	// +checklocks:mu
	queue []*turn
}

type turn struct {
	reads, writes []Ino
	// begun is closed when the turn starts.
	begun chan struct{}
	// on reports whether the turn has started.
	on bool
}

// takeTurn implements Store.TakeTurn.
func (q *turns) takeTurn(ctx context.Context, reads, writes []Ino) (done func(), err error) {
	t := &turn{reads: reads, writes: writes, begun: make(chan struct{})}
	q.mu.Lock()
	q.queue = append(q.queue, t)
	q.grantLocked()
	q.mu.Unlock()
	select {
	case <-t.begun:
		return func() { q.end(t) }, nil
	case <-ctx.Done():
		q.end(t) // it may have started just now
		return nil, ctx.Err()
	}
}

func (q *turns) end(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = slices.DeleteFunc(q.queue, func(other *turn) bool { return other == t })
	q.grantLocked()
}

// grantLocked starts the turns that conflict with none before them in the queue.
//
// +checklocks:q.mu
func (q *turns) grantLocked() {
	for i, t := range q.queue {
		if t.on || slices.ContainsFunc(q.queue[:i], t.conflicts) {
			continue
		}
		t.on = true
		close(t.begun)
	}
}

func (t *turn) conflicts(other *turn) bool {
	return touches(t.writes, other.reads) || touches(t.writes, other.writes) || touches(t.reads, other.writes)
}

func touches(a, b []Ino) bool {
	return slices.ContainsFunc(a, func(ino Ino) bool { return slices.Contains(b, ino) })
}
