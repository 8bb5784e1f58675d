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
		if ready := g.uncount(); ready != nil { // it was the last one for a moment, and may hold locks
			go runAll(ready)
		}
		if in := g.enterLast(); in != nil {
			return in
		}
	}
	return nil
}

// enterLast admits a reader to the current generation; nil is returned if nothing is queued.
func (g *gate) enterLast() *generation {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last != nil {
		g.last.readers++
	}
	return g.last
}

// leave removes a reader and runs the frees that waited for it.
func (g *gate) leave(in *generation) {
	if in == nil {
		runAll(g.uncount())
		return
	}
	g.mu.Lock()
	in.readers--
	ready := g.ripeLocked()
	g.mu.Unlock()
	runAll(ready)
}

// uncount removes a reader from state. It returns the frees that have waited for the last one.
func (g *gate) uncount() (ready []func()) {
	if g.state.Add(^uint64(0)) != queued {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// A reader that is about to notice that something is queued is counted for a moment, and calls this then.
	if g.counted != nil && g.state.Load() == queued {
		g.counted.readers, g.counted = 0, nil
		ready = g.ripeLocked()
	}
	return ready
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
	for g.first.readers == 0 {
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

func runAll(all []func()) {
	for _, fn := range all {
		fn()
	}
}
