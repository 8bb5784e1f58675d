package local

import (
	"sync/atomic"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// Refusals counts the refusals at the limits of clients. The zero value is ready for use; its
// methods may be called from any goroutine.
type Refusals struct{ memories, calls, keys atomic.Uint64 }

// Limits returns the limits of a client, and the number of refusals by each.
func (r *Refusals) Limits() []metadata.LimitStatus {
	return []metadata.LimitStatus{
		{Name: "session-memories", Limit: hetero.MaxMemories, Refused: r.memories.Load()},
		{Name: "session-background-calls", Limit: hetero.MaxBackgroundCalls, Refused: r.calls.Load()},
		{Name: "session-background-keys", Limit: hetero.MaxBackgroundKeys, Refused: r.keys.Load()},
	}
}
