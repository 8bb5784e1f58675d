package content

import (
	"sync"
	"sync/atomic"
)

// gate delays the freeing of memory until every reader that may have found it has left.
// Readers never wait: memory that is freed while they are inside is queued behind their
// generation.
//
//	generation 1 (2 readers) ── free ──> generation 2 (0 readers) …
//	the free of 1 runs when its last reader has left, and so have those before
//
// While nothing is queued there is one generation, which state counts: to enter and to leave take no lock.
type gate struct {
	// state is the number of readers that have entered while nothing was queued, and has the bit queued while something is.
	state atomic.Uint64

	mu sync.Mutex
	// counted is the generation of the readers that state counts, if something is queued behind them; nil for none.
	// +checklocks:mu
	counted *generation
	// first is the oldest generation that still has readers, or the current one; nil while nothing is queued.
	// +checklocks:mu
	first *generation
	// last is the current generation, which new readers enter; nil while nothing is queued.
	// +checklocks:mu
	last *generation
}

// queued is the bit of a gate's state.
const queued = 1 << 63

type generation struct {
	readers int
	free    func() // nil for the current generation
	next    *generation
}

// enter admits a reader. The caller passes the result to leave; nil is that of a reader that state counts.
func (g *gate) enter() *generation {
	for g.state.Add(1)&queued != 0 {
		if in := g.enterLast(); in != nil {
			return in
		}
	}
	return nil
}

// enterLast admits a reader that state counts, since it has entered a moment too late, to the current generation instead. It returns nil,
// and has only removed the reader from state, if nothing is queued any more. If it was the last one in state, what has waited for
// those runs when it leaves: the caller of enter may hold locks.
func (g *gate) enterLast() *generation {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state.Add(^uint64(0)) == queued {
		g.allLeftLocked()
	}
	if g.last != nil {
		g.last.readers++
	}
	return g.last
}

// allLeftLocked records that state counts no readers.
//
// +checklocks:g.mu
func (g *gate) allLeftLocked() {
	if g.counted != nil {
		g.counted.readers, g.counted = 0, nil
	}
}

// leave removes a reader and runs the frees that waited for it.
func (g *gate) leave(in *generation) {
	if in == nil && g.state.Add(^uint64(0)) != queued {
		return
	}
	g.mu.Lock()
	if in != nil {
		in.readers--
	} else if g.state.Load() == queued { // else enterLast will notice it
		g.allLeftLocked()
	}
	ready := g.ripeLocked()
	g.mu.Unlock()
	for _, free := range ready {
		free()
	}
}

// after runs free as soon as no reader is left that entered before now. Readers that enter
// later must not be able to find the memory that free releases.
func (g *gate) after(free func()) {
	g.mu.Lock()
	if g.last == nil && g.state.Or(queued) == 0 {
		g.state.And(^uint64(queued))
		g.mu.Unlock()
		free()
		return
	}
	if g.last == nil {
		g.counted = &generation{readers: 1} // one stands for all
		g.first, g.last = g.counted, g.counted
	}
	g.last.free, g.last.next = free, &generation{}
	g.last = g.last.next
	g.mu.Unlock()
}

// ripeLocked removes and returns the frees of the oldest generations without readers. If nothing remains queued,
// state counts the readers again.
//
// +checklocks:g.mu
func (g *gate) ripeLocked() []func() {
	var ready []func()
	for g.first != nil && g.first.readers == 0 {
		if g.first == g.last {
			g.first, g.last = nil, nil
			g.state.And(^uint64(queued))
			break
		}
		ready = append(ready, g.first.free)
		g.first = g.first.next
	}
	return ready
}
