package clustertest

import (
	"slices"
	"sync"

	"github.com/hmcfs/hmcfs/metadata/members"
)

// View is a static view whose addresses may be set later, when it is known where the other
// nodes listen.
type View struct {
	*members.StaticView

	mu sync.Mutex
	// +checklocks:mu
	addresses map[members.Name][]string
	// +checklocks:mu
	hidden map[members.Name]bool
}

// Set sets the addresses of a node.
func (v *View) Set(name members.Name, addresses ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.addresses[name] = addresses
}

// Hide removes a node from the view, or restores it.
func (v *View) Hide(name members.Name, hide bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hidden[name] = hide
}

// Nodes lists the other nodes.
func (v *View) Nodes() []members.Record {
	all := v.StaticView.Nodes()
	out := all[:0]
	for i := range all {
		if r, ok := v.fill(all[i]); ok {
			out = append(out, r)
		}
	}
	return out
}

// Get returns another node.
func (v *View) Get(name members.Name) (members.Record, bool) {
	r, ok := v.StaticView.Get(name)
	if !ok {
		return r, false
	}
	return v.fill(r)
}

// ByRank returns another node by its rank.
func (v *View) ByRank(rank uint32) (members.Record, bool) {
	r, _ := v.StaticView.ByRank(rank)
	r, shown := v.fill(r)
	if r.Name == "" || !shown {
		return members.Record{}, false
	}
	return r, true
}

// fill adds the addresses; it returns false for a hidden node.
func (v *View) fill(r members.Record) (members.Record, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if at := v.addresses[r.Name]; at != nil {
		r.Addresses = slices.Clone(at)
	}
	return r, !v.hidden[r.Name]
}
