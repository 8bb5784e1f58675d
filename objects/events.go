package objects

import (
	"context"

	"github.com/hmcfs/hmcfs/metadata"
)

// EventKind is what happened to a key.
type EventKind string

// The kinds of events.
const (
	// EventCreated: a key names an object now.
	EventCreated EventKind = "created"
	// EventRemoved: a key names none any more.
	EventRemoved EventKind = "removed"
	// EventExpired: the same, since its time was over.
	EventExpired EventKind = "expired"
	// EventLost: its bytes are gone with their memory.
	EventLost EventKind = "lost"
	// EventPublished: something is published under a key.
	EventPublished EventKind = "published"
	// EventConsumed: it was received.
	EventConsumed EventKind = "consumed"
	// EventWithdrawn: it is gone and nobody received it.
	EventWithdrawn EventKind = "withdrawn"
	// EventDropped stands for events that a listener was too slow for.
	EventDropped EventKind = "dropped"
)

// Event is one thing that happened to a key. Its JSON is a line of
// .hmcfs/events and of hmcfs watch.
type Event struct {
	// Seq grows by one with each event of the store, from 1.
	Seq    uint64              `json:"seq"`
	Time   string              `json:"time"` // RFC 3339 with nanoseconds, UTC
	Kind   EventKind           `json:"event"`
	Key    string              `json:"key,omitempty"`
	Ino    Ino                 `json:"ino,omitempty"`
	Device metadata.DeviceName `json:"device,omitempty"`
	Size   uint64              `json:"size"`
	// Dropped counts the events that an EventDropped stands for.
	Dropped uint64 `json:"dropped,omitempty"`
}

// Events is one listener's queue. Its methods may be called from any goroutine.
type Events struct{}

// Listen begins a queue of what happens from now on. Close ends it. A queue
// that nobody reads is bounded: the oldest events go, and one EventDropped
// stands in their place.
func (s *Store) Listen() *Events { return &Events{} }

// Next waits for the next event.
//
// Errors: the context's; ErrClosed when the queue, or the store, is closed.
func (e *Events) Next(ctx context.Context) (Event, error) { return Event{}, notBuilt(ctx) }

// Close ends the queue.
func (e *Events) Close() {}
