package admin

import (
	"sync/atomic"

	"github.com/hmcfs/hmcfs/metadata"
)

// bound identifies a resource that is limited for each user other than root and the owner.
type bound int

const (
	boundConnections bound = iota
	boundSessions
	boundDescriptors
	boundWatches
	boundCallBytes
	boundCalls
	boundOpenFiles
	boundCount
)

// Refusals counts the requests refused because a user had reached a limit. The zero value
// is ready to use; its methods may be called from any goroutine.
type Refusals struct {
	n [boundCount]atomic.Uint64
}

// add counts a refusal; a nil receiver counts nothing.
func (r *Refusals) add(b bound) {
	if r != nil {
		r.n[b].Add(1)
	}
}

// Limits returns the limits of a user, with the number of refusals.
func (r *Refusals) Limits() []metadata.LimitStatus {
	all := [boundCount]metadata.LimitStatus{
		boundConnections: {Name: "user-connections", Limit: maxForeign},
		boundSessions:    {Name: "user-sessions", Limit: maxSessions},
		boundDescriptors: {Name: "user-descriptors", Limit: maxFiles},
		boundWatches:     {Name: "user-watches", Limit: maxListeners},
		boundCallBytes:   {Name: "user-call-bytes", Limit: callMemory},
		boundCalls:       {Name: "session-calls", Limit: maxForeignCalls},
		boundOpenFiles:   {Name: "session-open-files", Limit: maxForeignOpenFiles},
	}
	for i := range all {
		all[i].Refused = r.n[i].Load()
	}
	return all[:]
}
