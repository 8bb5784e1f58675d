package fusion

// queue is a FIFO queue. It reuses its memory: in the steady state it does not allocate.
type queue[T any] struct {
	all  []T
	head int
}

// len returns the number of items.
func (q *queue[T]) len() int { return len(q.all) - q.head }

// at returns item i, counted from the front.
func (q *queue[T]) at(i int) T { return q.all[q.head+i] }

func (q *queue[T]) push(v T) {
	if q.head > 0 && len(q.all) == cap(q.all) {
		n := copy(q.all, q.all[q.head:])
		clear(q.all[n:])
		q.all, q.head = q.all[:n], 0
	}
	q.all = append(q.all, v)
}

// drop removes n items from the front.
func (q *queue[T]) drop(n int) {
	clear(q.all[q.head : q.head+n])
	q.head += n
	if q.head == len(q.all) {
		q.all, q.head = q.all[:0], 0
	}
}
