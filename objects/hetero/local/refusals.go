package local

import (
	"sync/atomic"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// limit is one of the limits of a client.
type limit int

const (
	limitMemories limit = iota
	limitBackgroundCalls
	limitBackgroundKeys
	limitCount
)

// Refusals counts the refusals at the limits of clients. The zero value is ready for use; its
// methods may be called from any goroutine.
type Refusals struct {
	n [limitCount]atomic.Uint64
}

// add counts a refusal; a nil r ignores it.
func (r *Refusals) add(l limit) {
	if r != nil {
		r.n[l].Add(1)
	}
}

// Limits returns the limits of a client, and the number of refusals by each.
func (r *Refusals) Limits() []metadata.LimitStatus {
	all := [limitCount]metadata.LimitStatus{
		limitMemories:        {Name: "session-memories", Limit: hetero.MaxMemories},
		limitBackgroundCalls: {Name: "session-background-calls", Limit: hetero.MaxBackgroundCalls},
		limitBackgroundKeys:  {Name: "session-background-keys", Limit: hetero.MaxBackgroundKeys},
	}
	for i := range all {
		all[i].Refused = r.n[i].Load()
	}
	return all[:]
}
