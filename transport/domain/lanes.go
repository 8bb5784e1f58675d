package domain

import (
	"iter"
	"slices"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// lanes are queues by tag, each first in, first out. They keep the memory of
// a few that have become empty. The zero value is empty.
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

// pop takes the first of a lane that is not empty.
func (q *lane[T]) pop() T {
	var none T
	v := q.items[q.head]
	q.items[q.head] = none
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}

// pop takes the first one of a tag; false is that there is none.
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

// tidy takes an empty lane away.
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

// remove takes one away, wherever it stands.
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

// all goes through the lanes, in no order of tags.
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

// drain takes all.
func (l *lanes[T]) drain() []T {
	all := slices.Collect(l.all())
	l.byTag, l.n = nil, 0
	return all
}
