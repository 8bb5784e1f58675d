package admin

import (
	"context"
	"slices"
	"sync"
)

// budget is an amount shared by many users. A request for more than is left waits, and so
// do the requests after it.
type budget struct {
	whole int64

	mu sync.Mutex
	// +checklocks:mu
	left int64
	// +checklocks:mu
	waiting []*part
}

// part is a request that waits.
type part struct {
	n     int64
	given chan struct{}
}

func newBudget(n int64) *budget { return &budget{whole: n, left: n} }

// take returns when it has reserved n for the caller, who returns it with give. It fails
// when the context ends, and at once if n exceeds the whole budget.
func (b *budget) take(ctx context.Context, n int64) error {
	if n > b.whole {
		return errInvalid
	}
	if b.tryTake(n) {
		return nil
	}
	b.mu.Lock()
	s := &part{n: n, given: make(chan struct{})}
	b.waiting = append(b.waiting, s)
	b.serveLocked() // some may have been given back meanwhile
	b.mu.Unlock()
	select {
	case <-s.given:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	at := slices.Index(b.waiting, s)
	if at >= 0 {
		b.waiting = slices.Delete(b.waiting, at, at+1)
		b.serveLocked() // requests after it may fit
	}
	b.mu.Unlock()
	if at < 0 {
		b.give(n)
	}
	return ctx.Err()
}

// tryTake reserves n for the caller, who returns it with give, if it need not wait.
func (b *budget) tryTake(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || n > b.left {
		return false
	}
	b.left -= n
	return true
}

// give returns n to the budget.
func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
	b.serveLocked()
}

// serveLocked grants waiting requests what is available, in order.
//
// +checklocks:b.mu
func (b *budget) serveLocked() {
	for len(b.waiting) > 0 && b.waiting[0].n <= b.left {
		b.left -= b.waiting[0].n
		close(b.waiting[0].given)
		b.waiting = b.waiting[1:]
	}
}
