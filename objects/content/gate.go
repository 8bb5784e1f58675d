package content

import "sync"

// gate delays the freeing of memory until every reader that may have found it has left.
// Readers never wait: memory that is freed while they are inside is queued behind their
// generation.
//
//	generation 1 (2 readers) ── frees of 1 ──> generation 2 (0 readers) …
//	the frees of 1 run when its last reader leaves
type gate struct {
	mu sync.Mutex
	// first is the oldest generation that still has readers, or the current one.
	// +checklocks:mu
	first *generation
	// last is the current generation, which new readers enter.
	// +checklocks:mu
	last *generation
}

type generation struct {
	readers int
	frees   []func()
	next    *generation
}

// enter admits a reader. The caller passes the result to leave.
func (g *gate) enter() *generation {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last == nil {
		g.last = &generation{}
		g.first = g.last
	}
	g.last.readers++
	return g.last
}

// leave removes a reader and runs the frees that waited for it.
func (g *gate) leave(in *generation) {
	g.mu.Lock()
	in.readers--
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
	if g.last == nil || (g.first == g.last && g.last.readers == 0) {
		g.mu.Unlock()
		free()
		return
	}
	g.last.frees = append(g.last.frees, free)
	if g.last.readers > 0 {
		g.last.next = &generation{}
		g.last = g.last.next
	}
	g.mu.Unlock()
}

// ripeLocked removes and returns the frees of the oldest generations without readers.
//
// +checklocks:g.mu
func (g *gate) ripeLocked() []func() {
	var ready []func()
	for g.first.readers == 0 {
		ready = append(ready, g.first.frees...)
		g.first.frees = nil
		if g.first.next == nil {
			break
		}
		g.first = g.first.next
	}
	return ready
}
