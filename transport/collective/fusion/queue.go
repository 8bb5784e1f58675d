package fusion

// queue is first in, first out. It keeps its memory: in the long run it
// allocates nothing.
type queue[T any] struct {
	all  []T
	head int
}

// len returns their number.
func (q *queue[T]) len() int { return len(q.all) - q.head }

// at is the one behind i others.
func (q *queue[T]) at(i int) T { return q.all[q.head+i] }

// push puts one at the end.
func (q *queue[T]) push(v T) {
	if q.head > 0 && len(q.all) == cap(q.all) {
		n := copy(q.all, q.all[q.head:])
		clear(q.all[n:])
		q.all, q.head = q.all[:n], 0
	}
	q.all = append(q.all, v)
}

// drop takes n from the front.
func (q *queue[T]) drop(n int) {
	clear(q.all[q.head : q.head+n])
	q.head += n
	if q.head == len(q.all) {
		q.all, q.head = q.all[:0], 0
	}
}
