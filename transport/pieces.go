package transport

import (
	"context"
	"sync"
	"sync/atomic"
)

// pieces are the parts of one copy, which several workers move concurrently.
type pieces struct {
	count uint64
	// next is the number of pieces that were started.
	next   atomic.Uint64
	cancel context.CancelFunc
	first  sync.Once
	err    error
}

// pieceMover moves the piece of a number, as one of the workers of a copy.
type pieceMover interface {
	movePiece(ctx context.Context, worker int, number uint64) error
}

// move moves all pieces by workers, of which the caller is the first; the others
// run between enter and leave. It returns the first error of any, which stops the
// rest: later ones are mostly caused by that.
func (p *pieces) move(ctx context.Context, workers int, enter func() (leave func()), by pieceMover) error {
	ctx, p.cancel = context.WithCancel(ctx)
	defer p.cancel()
	var running sync.WaitGroup
	for worker := 1; worker < workers; worker++ {
		running.Go(func() {
			defer enter()()
			p.work(ctx, worker, by)
		})
	}
	p.work(ctx, 0, by)
	running.Wait()
	return p.err
}

// work moves one piece after another.
func (p *pieces) work(ctx context.Context, worker int, by pieceMover) {
	for {
		number := p.next.Add(1) - 1
		if number >= p.count {
			return
		}
		if err := by.movePiece(ctx, worker, number); err != nil {
			p.first.Do(func() { p.err = err })
			p.cancel()
			return
		}
	}
}
