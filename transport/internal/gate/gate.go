package gate

import (
	"context"
	"sync/atomic"
)

// shutBit is set in a gate that is shut.
const shutBit = 1 << 62

// Gate counts the operations in progress, so that whatever it guards can wait for
// them before it ends. It takes no lock. The zero value is open.
type Gate struct {
	state atomic.Int64
	// empty is closed when the gate is shut and no operation is inside.
	empty atomic.Pointer[chan struct{}]
	done  atomic.Bool
}

// Enter reports whether the gate is open; if so, Leave must follow.
func (g *Gate) Enter() bool {
	if g.state.Add(1)&shutBit != 0 {
		g.Leave()
		return false
	}
	return true
}

// Leave ends an operation that Enter admitted.
func (g *Gate) Leave() {
	if g.state.Add(-1) == shutBit {
		g.signal()
	}
}

// signal closes empty, once.
func (g *Gate) signal() {
	if c := g.empty.Load(); c != nil && g.done.CompareAndSwap(false, true) {
		close(*c)
	}
}

// Shut stops Enter from admitting further operations. It may be called
// repeatedly; the first call returns true.
func (g *Gate) Shut() (first bool) {
	c := make(chan struct{})
	if !g.empty.CompareAndSwap(nil, &c) {
		return false
	}
	if g.state.Add(shutBit) == shutBit {
		g.signal()
	}
	return true
}

// Drain waits until no operation is inside a gate that is shut.
func (g *Gate) Drain() { <-*g.empty.Load() }

// Wait waits until no operation is inside a gate that is shut, or the context
// ends.
func (g *Gate) Wait(ctx context.Context) error {
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
