package admin

import (
	"context"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// Keyed answers what concerns keys. Its methods may be called from any
// goroutine, and what they return is what the caller may have.
type Keyed interface {
	// Begin begins a client for a user. Whoever called closes it.
	Begin(by objects.Caller) (hetero.Client, error)
	// Keys hands out the keys that begin with a prefix, in order; with
	// published set, what is published. It ends with the first error of each,
	// and returns that.
	Keys(ctx context.Context, by objects.Caller, prefix string, published bool, each func(adminapi.Key) error) error
	// Listen begins to hear what happens to keys.
	Listen(by objects.Caller) EventQueue
}

// EventQueue has the events of keys, bounded by itself.
type EventQueue interface {
	// Next waits for the next event.
	Next(ctx context.Context) (objects.Event, error)
	Close()
}
