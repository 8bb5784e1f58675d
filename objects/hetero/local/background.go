package local

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

// background bounds the work that continues after calls have returned, so that a client can't
// fill the daemon's memory with work that it does not wait for.
type background struct {
	refusals *Refusals

	mu sync.Mutex
	// +checklocks:mu
	calls, keys int
}

// take reserves room for a call of n keys.
//
// Errors: ErrBusy.
func (b *background) take(n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.calls >= hetero.MaxBackgroundCalls:
		b.refusals.calls.Add(1)
	case b.keys+n > hetero.MaxBackgroundKeys:
		b.refusals.keys.Add(1)
	default:
		b.calls++
		b.keys += n
		return nil
	}
	return fmt.Errorf("%w: too many background calls: %d keys in %d calls are in progress", hetero.ErrBusy, b.keys, b.calls)
}

func (b *background) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls--
	b.keys -= n
}

// detach starts a call that continues after its method returns: leave ends it.
func (c *Client) detach(ctx context.Context, n int) (call context.Context, leave func(), err error) {
	if err = c.background.take(n); err != nil {
		return nil, nil, err
	}
	call, begun, err := c.begin(ctx)
	if err != nil {
		c.background.give(n)
		return nil, nil, err
	}
	return call, func() {
		c.background.give(n)
		begun.leave()
	}, nil
}

// batch executes a call on n keys in the background.
func (c *Client) batch(ctx context.Context, n int, call func(context.Context) hetero.Results) (*hetero.Batch, error) {
	ctx, leave, err := c.detach(ctx, n)
	if err != nil {
		return nil, err
	}
	b, settle := hetero.NewBatch()
	go func() {
		defer leave()
		settle(call(ctx))
	}()
	return b, nil
}
