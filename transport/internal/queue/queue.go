package queue

import (
	"iter"
	"slices"
)

// Queue is a FIFO queue that keeps its memory. The zero value is empty.
type Queue[T any] struct {
	items []T
	head  int
}

// Empty reports whether the queue has no elements.
func (q *Queue[T]) Empty() bool { return q.head == len(q.items) }

// Len returns the number of elements.
func (q *Queue[T]) Len() int { return len(q.items) - q.head }

// Push adds an element.
func (q *Queue[T]) Push(v T) {
	// Moving fewer elements than were removed costs a bounded time for each.
	if len(q.items) == cap(q.items) && q.head >= (len(q.items)+1)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

// First returns the first element of a queue that is not empty.
func (q *Queue[T]) First() T { return q.items[q.head] }

// Pop removes the first element of a queue that is not empty.
func (q *Queue[T]) Pop() T {
	var none T
	v := q.items[q.head]
	q.items[q.head] = none
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}

// Drain removes all elements.
func (q *Queue[T]) Drain() []T {
	all := q.items[q.head:]
	*q = Queue[T]{}
	return all
}

// All iterates over the elements, the first one first.
func (q *Queue[T]) All() iter.Seq[T] { return slices.Values(q.items[q.head:]) }

// Cap returns the number of elements that the kept memory has room for.
func (q *Queue[T]) Cap() int { return cap(q.items) }

// Remove removes the first element that equals v, and reports whether there was one.
func Remove[T comparable](q *Queue[T], v T) bool {
	i := slices.Index(q.items[q.head:], v)
	if i < 0 {
		return false
	}
	q.items = slices.Delete(q.items, q.head+i, q.head+i+1)
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return true
}
