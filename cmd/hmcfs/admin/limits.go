package admin

import (
	"sync/atomic"

	"github.com/hmcfs/hmcfs/metadata"
)

// bound is something that one other user than root and the owner has so much of.
type bound int

const (
	boundConnections bound = iota
	boundSessions
	boundDescriptors
	boundWatches
	boundCallBytes
	boundCount
)

// Refusals count what the server has refused since a user had as much as one may
// have. The zero value is ready; its methods may be called from any goroutine.
type Refusals struct {
	n [boundCount]atomic.Uint64
}

// add counts a refusal; nil counts none.
func (r *Refusals) add(b bound) {
	if r != nil {
		r.n[b].Add(1)
	}
}

// Limits lists the bounds of a user, and the refusals.
func (r *Refusals) Limits() []metadata.LimitStatus {
	all := [boundCount]metadata.LimitStatus{
		boundConnections: {Name: "user-connections", Limit: maxForeign},
		boundSessions:    {Name: "user-sessions", Limit: maxSessions},
		boundDescriptors: {Name: "user-descriptors", Limit: maxFiles},
		boundWatches:     {Name: "user-watches", Limit: maxListeners},
		boundCallBytes:   {Name: "user-call-bytes", Limit: callMemory},
	}
	for i := range all {
		all[i].Refused = r.n[i].Load()
	}
	return all[:]
}
