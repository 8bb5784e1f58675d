package cli

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// fakeEvents is a stream that a test feeds.
type fakeEvents struct {
	events chan keyEvent
	closed chan struct{}
}

func newFakeEvents() *fakeEvents {
	return &fakeEvents{events: make(chan keyEvent, 100), closed: make(chan struct{})}
}

// errEnded is the end of a stream.
var errEnded = errors.New("ended")

func (f *fakeEvents) Next(ctx context.Context) (keyEvent, error) {
	select {
	case e, open := <-f.events:
		if !open {
			return e, errEnded
		}
		return e, nil
	case <-ctx.Done():
		return keyEvent{}, ctx.Err()
	}
}

func (f *fakeEvents) Close() error {
	close(f.closed)
	return nil
}

// world is keys that come and go.
type world struct {
	mu     sync.Mutex
	keys   map[string]bool // +checklocks:mu
	taken  chan string
	failed map[int]error
	events *fakeEvents
}

func newWorld(keys ...string) *world {
	w := &world{keys: map[string]bool{}, taken: make(chan string, 100), failed: map[int]error{}, events: newFakeEvents()}
	for _, key := range keys {
		w.keys[key] = true
	}
	return w
}

func (w *world) set(key string, there bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys[key] = there
}

// come makes a key be there, and tells.
func (w *world) come(key string) {
	w.set(key, true)
	w.events.events <- keyEvent{Kind: eventCreated, Key: key}
}

func (w *world) arrivals(keys []string) *arrivals {
	return &arrivals{
		there: func(keys []string) []presence {
			return lookUp(keys, func(key string) (bool, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.keys[key], nil
			})
		},
		listen: func(context.Context) (eventStream, error) { return w.events, nil },
		kinds:  []string{eventCreated},
		take: func(_ context.Context, places []int) []int {
			for _, p := range places {
				w.taken <- keys[p]
			}
			return nil
		},
		fail: func(place int, err error) { w.failed[place] = err },
	}
}

func TestArrivalsWithoutWaiting(t *testing.T) {
	kit.Check(t)
	w := newWorld("b", "c")
	keys := []string{"a", "b", "c"}
	if err := w.arrivals(keys).each(t.Context(), keys, 0); err != nil {
		t.Fatal(err)
	}
	if a, b := <-w.taken, <-w.taken; a != "b" || b != "c" {
		t.Errorf("taken %s, %s", a, b)
	}
	if len(w.failed) != 1 || !errors.Is(w.failed[0], hetero.ErrNotFound) {
		t.Errorf("failed: %v", w.failed)
	}
}

// A key that is there, can't be taken, and is told of again and again, is waited
// for as long as was asked, and no longer.
func TestArrivalsThatStayBehind(t *testing.T) {
	kit.Check(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("a")
		keys := []string{"a"}
		v := w.arrivals(keys)
		tries := 0
		v.take = func(_ context.Context, places []int) []int {
			tries++
			<-time.After(300 * time.Millisecond)
			w.come("a")
			return places
		}
		if err := v.each(t.Context(), keys, time.Second); err != nil {
			t.Error(err)
		}
		if tries < 4 || tries > 6 || !errors.Is(w.failed[0], hetero.ErrTimeout) {
			t.Errorf("%d attempts, failed: %v", tries, w.failed)
		}
	})
}

// TestArrivalsHoldUpNobody has the first key missing for ever: the others are
// taken as they come, once each.
func TestArrivalsHoldUpNobody(t *testing.T) {
	kit.Check(t)
	w := newWorld("c")
	keys := []string{"a", "b", "c", "d"}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.arrivals(keys).each(ctx, keys, time.Hour) }()
	if got := <-w.taken; got != "c" {
		t.Errorf("taken %s first", got)
	}
	w.events.events <- keyEvent{Kind: eventRemoved, Key: "d"}
	w.events.events <- keyEvent{Kind: eventCreated, Key: "e"}
	w.come("d")
	if got := <-w.taken; got != "d" {
		t.Errorf("taken %s second", got)
	}
	w.come("d") // again
	w.set("b", true)
	w.events.events <- keyEvent{Kind: eventDropped}
	if got := <-w.taken; got != "b" {
		t.Errorf("taken %s third", got)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-w.events.closed
	if len(w.taken) != 0 || len(w.failed) != 0 {
		t.Errorf("%d more taken, failed: %v", len(w.taken), w.failed)
	}
}

func TestArrivalsEnd(t *testing.T) {
	kit.Check(t)
	keys := []string{"a", "b"}

	w := newWorld("b")
	if err := w.arrivals(keys).each(t.Context(), keys, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(w.failed[0], hetero.ErrTimeout) || len(w.failed) != 1 || len(w.taken) != 1 {
		t.Errorf("at the timeout: %d taken, %v", len(w.taken), w.failed)
	}

	w = newWorld()
	close(w.events.events)
	if err := w.arrivals(keys).each(t.Context(), keys, time.Hour); !errors.Is(err, errEnded) || len(w.failed) != 0 {
		t.Errorf("the stream ends: %v, %v", err, w.failed)
	}

	w = newWorld()
	v := w.arrivals(keys)
	v.there = func(keys []string) []presence {
		return lookUp(keys, func(key string) (bool, error) { return key == "b", map[string]error{"a": hetero.ErrLost}[key] })
	}
	if err := v.each(t.Context(), keys, time.Hour); err != nil || !errors.Is(w.failed[0], hetero.ErrLost) || len(w.taken) != 1 {
		t.Errorf("a key that can't be looked at: %v, %v", err, w.failed)
	}
}

// TestArrivalsLoseARace has somebody else take a key that was there: it is
// waited for again.
func TestArrivalsLoseARace(t *testing.T) {
	kit.Check(t)
	keys := []string{"a", "b"}
	w := newWorld("a", "b")
	v := w.arrivals(keys)
	tries := map[int]int{}
	v.take = func(_ context.Context, places []int) (again []int) {
		for _, p := range places {
			if tries[p]++; p == 0 && tries[p] == 1 {
				again = append(again, p)
				w.come("a")
			}
		}
		return again
	}
	if err := v.each(t.Context(), keys, time.Hour); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(tries, map[int]int{0: 2, 1: 1}) {
		t.Errorf("tries: %v", tries)
	}
}

// TestArrivalsForgetStrangers bounds what is kept of others' events.
func TestArrivalsForgetStrangers(t *testing.T) {
	kit.Check(t)
	w := newWaiting([]string{"a", "b"})
	for i := range 3 * hetero.MaxKeys {
		w.note(string(rune('A'+i%26))+time.Duration(i).String(), false)
	}
	w.mu.Lock()
	kept := len(w.noted)
	w.mu.Unlock()
	if kept > hetero.MaxKeys {
		t.Errorf("%d keys are kept", kept)
	}
	got, err := w.next(t.Context())
	if err != nil || !slices.Equal(got, []int{0, 1}) {
		t.Errorf("%v, %v", got, err)
	}
}
