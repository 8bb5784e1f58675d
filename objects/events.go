package objects

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
)

// EventKind says what happened to a key.
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
	// EventPublished: something is published under a key, or is again, after
	// one who was about to receive it has failed.
	EventPublished EventKind = "published"
	// EventConsumed: it was received.
	EventConsumed EventKind = "consumed"
	// EventWithdrawn: it is gone and nobody received it.
	EventWithdrawn EventKind = "withdrawn"
	// EventConflict: another machine has the key too. Where the object here loses
	// the key, EventRemoved comes before.
	EventConflict EventKind = "conflict"
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

	// mode and owner are the object's when it happened.
	mode     metadata.Mode
	uid, gid uint32
}

// MayRead says whether a user may hear of the event: one who may read the
// object, by its owner and mode when it happened. Everybody hears that events
// were dropped.
func (e Event) MayRead(c Caller) bool {
	return e.Kind == EventDropped || c.May(&metadata.Inode{Mode: e.mode, UID: e.uid, GID: e.gid}, PermRead)
}

// queueLen bounds the events that wait for listeners, who share one queue, so that
// their number costs no memory.
const queueLen = 16384

// events keeps each event until all listeners have taken it.
type events struct {
	claims *claims

	mu sync.Mutex
	// +checklocks:mu
	seq uint64
	// +checklocks:mu
	queues map[*Events]struct{}
	// recent are the last events, as far back as a listener has not taken them,
	// oldest first and without gaps; last is the newest one's Seq.
	// +checklocks:mu
	recent []Event
	// +checklocks:mu
	last uint64
	// dropped counts the events that a listener had not taken when there was no room.
	// +checklocks:mu
	dropped uint64
	// +checklocks:mu
	closed bool
}

// Events is one listener's queue. Its methods may be called from any goroutine.
type Events struct {
	hub *events
	// hub.mu guards the rest. next is the Seq of the next event of hub.recent.
	next uint64
	// came is closed, and made anew, when something has changed.
	came  chan struct{}
	ended bool
}

// emit tells all who listen. It is called when what happened is in the
// records, and by who changes one key in the order of the changes: under the
// lock that puts them in order. It waits for nobody.
func (h *events) emit(kind EventKind, key string, in metadata.Inode) {
	h.authorityTold(kind, key)
	h.add(&Event{
		Kind: kind, Key: key, Ino: in.Ino, Device: in.Device, Size: in.Size,
		mode: in.Mode, uid: in.UID, gid: in.GID,
	})
}

// add appends an event to the queues.
func (h *events) add(ev *Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	if len(h.queues) == 0 || h.closed {
		return
	}
	ev.Seq, ev.Time = h.seq, time.Now().UTC().Format(time.RFC3339Nano)
	if len(h.recent) == queueLen {
		if h.leastLocked() <= h.recent[0].Seq {
			h.dropped++
		}
		h.recent = h.recent[1:]
	}
	h.recent, h.last = append(h.recent, *ev), h.seq
	for e := range h.queues {
		h.wakeLocked(e)
	}
}

// leastLocked returns the Seq of the first event that not all have taken.
//
// +checklocks:h.mu
func (h *events) leastLocked() uint64 {
	least := h.last + 1
	for e := range h.queues {
		least = min(least, e.next)
	}
	return least
}

// droppedSoFar returns how many events a listener was too slow for.
func (h *events) droppedSoFar() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dropped
}

// nextLocked takes the next event out of a queue; false when there is none.
//
// +checklocks:h.mu
func (h *events) nextLocked(e *Events) (ev Event, ok bool) {
	if len(h.recent) == 0 || e.next > h.last {
		return Event{}, false
	}
	first := h.last + 1 - uint64(len(h.recent))
	if e.next < first {
		ev = Event{Seq: first - 1, Time: h.recent[0].Time, Kind: EventDropped, Dropped: first - e.next}
		e.next = first
		return ev, true
	}
	ev = h.recent[e.next-first]
	if e.next++; e.next > h.last {
		h.trimLocked()
	}
	return ev, true
}

// trimLocked lets those of the last events go that all have taken, once they are
// half of them: a listener that stays behind has the others copied what is left,
// and so at most once for as many events.
//
// +checklocks:h.mu
func (h *events) trimLocked() {
	keep := h.last + 1 - h.leastLocked()
	if n := uint64(len(h.recent)); keep <= n/2 && n > 0 {
		h.recent = slices.Clone(h.recent[n-keep:]) // its memory too
	}
}

// +checklocks:h.mu
func (h *events) wakeLocked(e *Events) {
	close(e.came)
	e.came = make(chan struct{})
}

// Next waits for the next event.
//
// Errors: the context's; ErrClosed when the queue is closed, and when the store
// is and the events before that were taken.
func (e *Events) Next(ctx context.Context) (Event, error) {
	for {
		ev, came, err := e.take()
		if err != nil || came == nil {
			return ev, err
		}
		select {
		case <-came:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// take takes the next event out, or tells what to wait for.
//
// Errors: ErrClosed.
func (e *Events) take() (ev Event, came <-chan struct{}, err error) {
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	if _, listens := e.hub.queues[e]; listens {
		if next, ok := e.hub.nextLocked(e); ok {
			return next, nil, nil
		}
	}
	if e.ended {
		return Event{}, nil, fmt.Errorf("wait for an event: %w", ErrClosed)
	}
	return Event{}, e.came, nil
}

// Close ends the queue.
func (e *Events) Close() {
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	if _, listens := e.hub.queues[e]; listens {
		delete(e.hub.queues, e)
		e.ended = true
		e.hub.trimLocked()
		e.hub.wakeLocked(e)
	}
}

// close ends every queue when its events are taken.
func (h *events) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for e := range h.queues {
		e.ended = true
		h.wakeLocked(e)
	}
}
