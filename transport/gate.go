package transport

import "sync/atomic"

// gate counts the calls in progress, so that Close can wait for them. It takes no
// lock.
type gate struct {
	inside atomic.Int64
	shut   atomic.Bool
	// empty has room for the one signal that the last to leave sends.
	empty chan struct{}
}

func newGate() *gate { return &gate{empty: make(chan struct{}, 1)} }

// enter reports whether the gate is open; if so, leave must follow.
func (g *gate) enter() bool {
	g.inside.Add(1)
	if g.shut.Load() {
		g.leave()
		return false
	}
	return true
}

func (g *gate) leave() {
	if g.inside.Add(-1) == 0 && g.shut.Load() {
		select {
		case g.empty <- struct{}{}:
		default:
		}
	}
}

// close shuts the gate and waits until no call is inside.
func (g *gate) close() {
	g.shut.Store(true)
	for g.inside.Load() > 0 {
		<-g.empty
	}
}
