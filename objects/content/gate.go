package content

import "sync"

// gate holds back the freeing of device memory until every reader that may
// have found it has gone. Readers never wait: what is freed while they are
// inside is queued behind the generation that they belong to.
//
//	generation 1 (2 readers) ── frees of 1 ──> generation 2 (0 readers) …
//	the frees of 1 run when its last reader leaves
type gate struct {
	mu sync.Mutex
	// first is the oldest that still has readers, or the present one.
	// +checklocks:mu
	first *generation
	// last is the present one, which new readers enter.
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

// leave ends a reader's stay and runs the frees that waited for it.
func (g *gate) leave(in *generation) {
	g.mu.Lock()
	in.readers--
	ready := g.ripeLocked()
	g.mu.Unlock()
	for _, free := range ready {
		free()
	}
}

// after runs free as soon as no reader is left that entered before now. What
// free gives back must no longer be found by readers that enter later.
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

// ripeLocked takes the frees of every oldest generation without readers.
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
