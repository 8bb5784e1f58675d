package admin

import (
	"context"
	"slices"
	"sync"
)

// budget is an amount that many take parts of. Who asks for more than is left
// waits, and those behind it too.
type budget struct {
	whole int64

	mu sync.Mutex
	// +checklocks:mu
	left int64
	// +checklocks:mu
	waiting []*part
}

// part is an amount that is waited for.
type part struct {
	n     int64
	given chan struct{}
}

func newBudget(n int64) *budget { return &budget{whole: n, left: n} }

// take returns when n are the caller's, who gives them back. It fails with the
// context, and at once for what is never there.
func (b *budget) take(ctx context.Context, n int64) error {
	if n > b.whole {
		return errInvalid
	}
	b.mu.Lock()
	if len(b.waiting) == 0 && n <= b.left {
		b.left -= n
		b.mu.Unlock()
		return nil
	}
	s := &part{n: n, given: make(chan struct{})}
	b.waiting = append(b.waiting, s)
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
		b.serveLocked() // those behind may fit
	}
	b.mu.Unlock()
	if at < 0 {
		b.give(n)
	}
	return ctx.Err()
}

// give gives n back.
func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
	b.serveLocked()
}

// serveLocked gives those who wait what is there, in order.
//
// +checklocks:b.mu
func (b *budget) serveLocked() {
	for len(b.waiting) > 0 && b.waiting[0].n <= b.left {
		b.left -= b.waiting[0].n
		close(b.waiting[0].given)
		b.waiting = b.waiting[1:]
	}
}
