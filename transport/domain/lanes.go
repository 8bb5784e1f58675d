package domain

import (
	"iter"
	"slices"

	"github.com/hmcfs/hmcfs/transport/internal/queue"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// lanes are FIFO queues, one for each tag. The memory of a few empty ones is kept. The zero
// value is empty.
type lanes[T comparable] struct {
	byTag map[wire.Tag]*queue.Queue[T]
	spare []*queue.Queue[T]
	n     int
}

// spareLanes is the number of empty lanes that are kept.
const spareLanes = 16

func (l *lanes[T]) push(tag wire.Tag, v T) {
	q := l.byTag[tag]
	if q == nil {
		if l.byTag == nil {
			l.byTag = map[wire.Tag]*queue.Queue[T]{}
		}
		if n := len(l.spare); n > 0 {
			q, l.spare = l.spare[n-1], l.spare[:n-1]
		} else {
			q = new(queue.Queue[T])
		}
		l.byTag[tag] = q
	}
	q.Push(v)
	l.n++
}

// pop removes and returns the first item of a tag; false means that there is none.
func (l *lanes[T]) pop(tag wire.Tag) (T, bool) {
	var none T
	q := l.byTag[tag]
	if q == nil {
		return none, false
	}
	v := q.Pop()
	l.n--
	l.tidy(tag, q)
	return v, true
}

// tidy removes an empty lane.
func (l *lanes[T]) tidy(tag wire.Tag, q *queue.Queue[T]) {
	if !q.Empty() {
		return
	}
	delete(l.byTag, tag)
	if len(l.spare) < spareLanes && q.Cap() <= 1024 {
		l.spare = append(l.spare, q)
	}
}

// remove removes an item at any position.
func (l *lanes[T]) remove(tag wire.Tag, v T) bool {
	q := l.byTag[tag]
	if q == nil {
		return false
	}
	if !queue.Remove(q, v) {
		return false
	}
	l.n--
	l.tidy(tag, q)
	return true
}

// all iterates over the items of all lanes, in no order of tags.
func (l *lanes[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, q := range l.byTag {
			for v := range q.All() {
				if !yield(v) {
					return
				}
			}
		}
	}
}

// drain removes and returns all items.
func (l *lanes[T]) drain() []T {
	all := slices.Collect(l.all())
	l.byTag, l.n = nil, 0
	return all
}
