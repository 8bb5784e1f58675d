package objects

import (
	"slices"
)

// replicas lists them, the oldest first.
func (b *bound) replicas() []*bound {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spares
}

// successor is the oldest replica that is alive, or nil.
func (b *bound) successor() *bound {
	for _, r := range b.replicas() {
		if r.alive() {
			return r
		}
	}
	return nil
}

// dropReplicas lets replicas go: those that are meant, or all for nil. The
// caller has the object's lane.
func (b *bound) dropReplicas(meant func(*bound) bool) {
	b.mu.Lock()
	if len(b.spares) == 0 {
		b.mu.Unlock()
		return
	}
	var kept, gone []*bound
	for _, r := range b.spares {
		if meant == nil || meant(r) {
			gone = append(gone, r)
		} else {
			kept = append(kept, r)
		}
	}
	b.spares = kept
	b.mu.Unlock()
	for _, r := range gone {
		r.end()
	}
}

// addReplica makes content another source, in place of the one that its holder
// has been before. The caller has the object's lane.
func (b *bound) addReplica(r *bound) {
	b.dropReplicas(func(other *bound) bool { return other.made.holder == r.made.holder })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spares = append(slices.Clip(b.spares), r)
}
