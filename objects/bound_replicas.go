package objects

import (
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
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

// addReplica adds another source of the same bytes, in place of those that it
// replaces. The caller has the object's lane.
//
// Errors: metadata.ErrNotExist when the content is about to go with its object.
func (b *bound) addReplica(r *bound, replaces func(*bound) bool) error {
	b.dropReplicas(replaces)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leaving {
		return fmt.Errorf("its owner lets it go: %w", metadata.ErrNotExist)
	}
	b.spares = append(slices.Clip(b.spares), r)
	return nil
}

// inherit makes replicas those of content that had none.
func (b *bound) inherit(spares []*bound) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spares = spares
}

// setLeaving notes whether the content is about to go with its object: it gets no
// replicas then.
func (b *bound) setLeaving(now bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaving = now
}
