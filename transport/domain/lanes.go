package domain

import (
	"iter"
	"slices"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// lanes are FIFO queues, one for each tag. The memory of a few empty ones is kept. The zero
// value is empty.
type lanes[T comparable] struct {
	byTag map[wire.Tag]*lane[T]
	spare []*lane[T]
	n     int
}

type lane[T any] struct {
	items []T
	head  int
}

// spareLanes is the number of empty lanes that are kept.
const spareLanes = 16

func (l *lanes[T]) push(tag wire.Tag, v T) {
	q := l.byTag[tag]
	if q == nil {
		if l.byTag == nil {
			l.byTag = map[wire.Tag]*lane[T]{}
		}
		if n := len(l.spare); n > 0 {
			q, l.spare = l.spare[n-1], l.spare[:n-1]
		} else {
			q = &lane[T]{}
		}
		l.byTag[tag] = q
	}
	q.push(v)
	l.n++
}

func (q *lane[T]) empty() bool { return q.head == len(q.items) }

func (q *lane[T]) push(v T) {
	if q.head > 0 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

// pop removes and returns the first item of a lane that is not empty.
func (q *lane[T]) pop() T {
	var none T
	v := q.items[q.head]
	q.items[q.head] = none
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}

// pop removes and returns the first item of a tag; false means that there is none.
func (l *lanes[T]) pop(tag wire.Tag) (T, bool) {
	var none T
	q := l.byTag[tag]
	if q == nil {
		return none, false
	}
	v := q.pop()
	l.n--
	l.tidy(tag, q)
	return v, true
}

// tidy removes an empty lane.
func (l *lanes[T]) tidy(tag wire.Tag, q *lane[T]) {
	if !q.empty() {
		return
	}
	delete(l.byTag, tag)
	q.items, q.head = q.items[:0], 0
	if len(l.spare) < spareLanes && cap(q.items) <= 1024 {
		l.spare = append(l.spare, q)
	}
}

// remove removes an item at any position.
func (l *lanes[T]) remove(tag wire.Tag, v T) bool {
	q := l.byTag[tag]
	if q == nil {
		return false
	}
	i := slices.Index(q.items[q.head:], v)
	if i < 0 {
		return false
	}
	q.items = slices.Delete(q.items, q.head+i, q.head+i+1)
	l.n--
	l.tidy(tag, q)
	return true
}

// all iterates over the items of all lanes, in no order of tags.
func (l *lanes[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, q := range l.byTag {
			for _, v := range q.items[q.head:] {
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
