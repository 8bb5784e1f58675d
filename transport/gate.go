package transport

import "sync/atomic"

// gate counts what is under way, so that Close can wait for it. It takes no
// lock.
type gate struct {
	inside atomic.Int64
	shut   atomic.Bool
	// empty has room for the one signal that the last to leave gives.
	empty chan struct{}
}

func newGate() *gate { return &gate{empty: make(chan struct{}, 1)} }

// enter says whether the gate is open; if so, leave must follow.
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

// close shuts the gate and waits until nobody is inside.
func (g *gate) close() {
	g.shut.Store(true)
	for g.inside.Load() > 0 {
		<-g.empty
	}
}
