package content

import (
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
)

// Replicas returns the replicas, oldest first. The caller does not change the slice.
func (b *Bound) Replicas() []*Bound {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spares
}

// DropReplicas ends the replicas for which meant returns true, or all for nil. The caller
// holds the object's lane.
func (b *Bound) DropReplicas(meant func(*Bound) bool) {
	if !b.replicated.Load() {
		return
	}
	b.mu.Lock()
	var kept, gone []*Bound
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
		r.End()
	}
}

// AddReplica adds another source of the same bytes, in place of those for which replaces
// returns true. The caller holds the object's lane.
//
// Errors: metadata.ErrNotExist when the content is about to go with its object.
func (b *Bound) AddReplica(r *Bound, replaces func(*Bound) bool) error {
	b.DropReplicas(replaces)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leaving {
		return fmt.Errorf("its owner is releasing it: %w", metadata.ErrNotExist)
	}
	b.replicated.Store(true)
	b.spares = append(slices.Clip(b.spares), r)
	return nil
}

// SetReplicas sets the replicas of content that had none.
func (b *Bound) SetReplicas(spares []*Bound) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicated.Store(true)
	b.spares = spares
}

// SetLeaving sets whether the content is about to go with its object. It accepts no
// replicas then.
func (b *Bound) SetLeaving(now bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaving = now
}
