package objects

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
)

// EventKind is the kind of change of a key.
type EventKind string

// The kinds of events.
const (
	// EventCreated: the key now names an object.
	EventCreated EventKind = "created"
	// EventRemoved: the key no longer names an object.
	EventRemoved EventKind = "removed"
	// EventExpired: the same, because its time to live is over.
	EventExpired EventKind = "expired"
	// EventLost: the object's bytes are lost with their memory.
	EventLost EventKind = "lost"
	// EventPublished: something is published under the key; also when it is offered again
	// after a receiver has failed.
	EventPublished EventKind = "published"
	// EventConsumed: the publication was received.
	EventConsumed EventKind = "consumed"
	// EventWithdrawn: the publication has ended without being received.
	EventWithdrawn EventKind = "withdrawn"
	// EventConflict: another node has the key too. If the object here loses the key,
	// EventRemoved comes before.
	EventConflict EventKind = "conflict"
	// EventDropped stands for events that were dropped because a listener was too slow.
	EventDropped EventKind = "dropped"
)

// Event is one change of a key. Its JSON is a line of .hmcfs/events and of hmcfs watch.
type Event struct {
	// Seq grows by one with each event of the store, from 1.
	Seq    uint64              `json:"seq"`
	Time   string              `json:"time"` // RFC 3339 with nanoseconds, UTC
	Kind   EventKind           `json:"event"`
	Key    string              `json:"key,omitempty"`
	Ino    Ino                 `json:"ino,omitempty"`
	Device metadata.DeviceName `json:"device,omitempty"`
	Size   uint64              `json:"size"`
	// Dropped is the number of events that an EventDropped stands for.
	Dropped uint64 `json:"dropped,omitempty"`

	// mode, uid and gid are the object's at the time of the event.
	mode     metadata.Mode
	uid, gid uint32
}

// MayRead reports whether a user may receive the event: one that may read the object,
// by its owner and mode at the time of the event. All users may receive EventDropped.
func (e Event) MayRead(c Caller) bool {
	return e.Kind == EventDropped || c.May(&metadata.Inode{Mode: e.mode, UID: e.uid, GID: e.gid}, PermRead)
}

// queueLen bounds the events that wait for listeners. The listeners share one queue, so
// that their number costs no memory.
const queueLen = 16384

// events keeps each event until all listeners have read it.
type events struct {
	claims *claims

	mu sync.Mutex
	// +checklocks:mu
	seq uint64
	// +checklocks:mu
	queues map[*Events]struct{}
	// recent holds the last events, back to the oldest that a listener has not read, oldest
	// first and without gaps; last is the newest one's Seq.
	// +checklocks:mu
	recent []Event
	// +checklocks:mu
	last uint64
	// dropped counts the events that were dropped before every listener had read them.
	// +checklocks:mu
	dropped uint64
	// +checklocks:mu
	closed bool
}

// Events is one listener's queue. Its methods may be called from any goroutine.
type Events struct {
	hub *events
	// hub.mu guards the rest. next is the Seq of the next event of hub.recent to read.
	next uint64
	// came is closed, and replaced, when the queue has changed.
	came  chan struct{}
	ended bool
}

// emit passes an event to all listeners. It is called when the change is in the
// records, under the lock that orders the changes of one key, so that the events of a
// key have that order. It does not block.
func (h *events) emit(kind EventKind, key string, in *metadata.Inode) {
	h.notifyAuthority(kind, key)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	if len(h.queues) == 0 || h.closed {
		return
	}
	h.addLocked(Event{
		Seq: h.seq, Time: time.Now().UTC().Format(time.RFC3339Nano),
		Kind: kind, Key: key, Ino: in.Ino, Device: in.Device, Size: in.Size,
		mode: in.Mode, uid: in.UID, gid: in.GID,
	})
}

// addLocked appends an event to the shared queue.
//
// +checklocks:h.mu
func (h *events) addLocked(ev Event) {
	if len(h.recent) == queueLen {
		if h.leastLocked() <= h.recent[0].Seq {
			h.dropped++
		}
		h.recent = h.recent[1:]
	}
	h.recent, h.last = append(h.recent, ev), h.seq
	for e := range h.queues {
		h.wakeLocked(e)
	}
}

// leastLocked returns the Seq of the first event that some listener has not read.
//
// +checklocks:h.mu
func (h *events) leastLocked() uint64 {
	least := h.last + 1
	for e := range h.queues {
		least = min(least, e.next)
	}
	return least
}

// droppedSoFar returns the number of events dropped because a listener was too slow.
func (h *events) droppedSoFar() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dropped
}

// nextLocked reads the next event of a listener; ok is false if there is none.
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

// trimLocked drops the events that all listeners have read, once they are at least half
// of recent: it copies the rest, at most as many events as it drops.
//
// +checklocks:h.mu
func (h *events) trimLocked() {
	keep := h.last + 1 - h.leastLocked()
	if n := uint64(len(h.recent)); keep <= n/2 && n > 0 {
		h.recent = slices.Clone(h.recent[n-keep:]) // frees the memory too
	}
}

// +checklocks:h.mu
func (h *events) wakeLocked(e *Events) {
	close(e.came)
	e.came = make(chan struct{})
}

// Next waits for the next event.
//
// Errors: the context's; ErrClosed if the queue is closed, or if the store is closed
// and all events before that have been read.
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

// take reads the next event, or returns the channel to wait for.
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

// close ends every queue, after its remaining events have been read.
func (h *events) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for e := range h.queues {
		e.ended = true
		h.wakeLocked(e)
	}
}

// listen implements Store.Listen.
func (h *events) listen() *Events {
	e := &Events{hub: h, came: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.ended = h.closed; e.ended {
		return e
	}
	if h.queues == nil {
		h.queues = map[*Events]struct{}{}
	}
	h.queues[e] = struct{}{}
	e.next = h.seq + 1
	return e
}
