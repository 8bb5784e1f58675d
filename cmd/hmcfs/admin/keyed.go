package admin

import (
	"context"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// Keyed serves requests about keys. Its methods may be called from any goroutine, and
// return only what the caller may see.
type Keyed interface {
	// Begin returns a new client for a user. The caller closes it. session is the secret name of a session that
	// a later daemon may continue; empty for any other.
	Begin(by objects.Caller, session string) (hetero.Client, error)
	// Keys passes each key that is asked for to each, in order. It ends with the first error of each, and returns that.
	Keys(ctx context.Context, by objects.Caller, asked adminapi.KeysRequest, each func(adminapi.Key) error) error
	// Listen subscribes to the events of keys.
	Listen(by objects.Caller) EventQueue
}

// EventQueue is a queue of events of keys, which limits its own length.
type EventQueue interface {
	// Next waits for the next event. One that is there already may be returned also if the context has ended.
	Next(ctx context.Context) (objects.Event, error)
	Close()
}
