package region

import (
	"context"
	"sync/atomic"
)

// shutBit is set in a gate that nobody may enter any more.
const shutBit = 1 << 62

// gate counts the operations that are under way, so that the end of what it
// guards can wait for them. It takes no lock. The zero value is open.
type gate struct {
	state atomic.Int64
	// empty is closed when the gate is shut and nobody is inside.
	empty atomic.Pointer[chan struct{}]
	done  atomic.Bool
	// once is for whoever ends what the gate guards.
	once atomic.Bool
}

// enter says whether the gate is open; if so, leave must follow.
func (g *gate) enter() bool {
	if g.state.Add(1)&shutBit != 0 {
		g.leave()
		return false
	}
	return true
}

func (g *gate) leave() {
	if g.state.Add(-1) == shutBit {
		g.signal()
	}
}

// signal closes empty, once.
func (g *gate) signal() {
	if c := g.empty.Load(); c != nil && g.done.CompareAndSwap(false, true) {
		close(*c)
	}
}

// shut lets nobody in any more. It may be called often.
func (g *gate) shut() {
	c := make(chan struct{})
	if !g.empty.CompareAndSwap(nil, &c) {
		return
	}
	if g.state.Add(shutBit) == shutBit {
		g.signal()
	}
}

// wait returns when nobody is inside a gate that is shut, or the context
// ends.
func (g *gate) wait(ctx context.Context) error {
	empty := *g.empty.Load()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-empty:
		return nil
	default:
		return ctx.Err()
	}
}
