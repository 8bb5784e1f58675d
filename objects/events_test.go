package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
)

func hear(s *Store, n int) {
	for i := range n {
		s.events.emit(EventCreated, fmt.Sprint(i), &metadata.Inode{Ino: Ino(i)})
	}
}

// TestEventsOrder: each listener gets all events, in order, from its call of Listen on.
func TestEventsOrder(t *testing.T) {
	t.Parallel()
	s := &Store{events: &events{claims: &claims{}}}
	hear(s, 5) // nobody listens
	e := s.Listen()
	defer e.Close()
	const n = 1000
	var all sync.WaitGroup
	all.Go(func() { hear(s, n) })
	for i := range n {
		ev, err := e.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ev.Seq != uint64(6+i) || ev.Key != fmt.Sprint(i) || ev.Kind != EventCreated {
			t.Fatalf("event %d is %+v", i, ev)
		}
		if _, err := time.Parse(time.RFC3339Nano, ev.Time); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
}

// TestEventsDropped: a queue that is not read loses its oldest events, and reports how
// many.
func TestEventsDropped(t *testing.T) {
	t.Parallel()
	s := &Store{events: &events{claims: &claims{}}, bindings: &bindings{}}
	e := s.Listen()
	defer e.Close()
	hear(s, queueLen+7)
	if l := s.Limits()[0]; l.Name != "waiting-events" || l.Refused != 7 {
		t.Errorf("%+v", l)
	}
	ev, err := e.Next(t.Context())
	if err != nil || ev.Kind != EventDropped || ev.Dropped != 7 || ev.Seq != 7 {
		t.Fatalf("first %+v, %v", ev, err)
	}
	if !ev.MayRead(Caller{UID: 7}) {
		t.Error("not everybody hears that events were dropped")
	}
	for i := range queueLen {
		if ev, err = e.Next(t.Context()); err != nil || ev.Seq != uint64(8+i) {
			t.Fatalf("event %d is %+v, %v", i, ev, err)
		}
	}
	hear(s, 1)
	if ev, err = e.Next(t.Context()); err != nil || ev.Seq != queueLen+8 {
		t.Fatalf("then %+v, %v", ev, err)
	}
	// Events that leave the queue after all listeners have read them are not dropped.
	const taken = queueLen * 2 / 5
	hear(s, queueLen)
	for range taken {
		if _, err = e.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	hear(s, taken)
	if l := s.Limits()[0]; l.Refused != 7 {
		t.Errorf("%+v", l)
	}
}

// TestEventsAreShared: listeners that read nothing hold no more events together than
// one does, and each continues at its own position.
func TestEventsAreShared(t *testing.T) {
	t.Parallel()
	s := &Store{events: &events{claims: &claims{}}, bindings: &bindings{}}
	const listeners = 100
	all := make([]*Events, listeners)
	for i := range all {
		all[i] = s.Listen()
		hear(s, 1)
	}
	hear(s, queueLen-listeners)
	if n, _ := heldEvents(s); n != queueLen {
		t.Errorf("%d events wait, want %d", n, queueLen)
	}
	for i, e := range all {
		if ev, err := e.Next(t.Context()); err != nil || ev.Seq != uint64(1+i) {
			t.Errorf("listener %d goes on with %+v, %v", i, ev, err)
		}
	}
	for _, e := range all[1:] {
		e.Close()
	}
	for i := range queueLen - 1 {
		if ev, err := all[0].Next(t.Context()); err != nil || ev.Seq != uint64(2+i) {
			t.Fatalf("event %d is %+v, %v", i, ev, err)
		}
	}
	if n, _ := heldEvents(s); n != 0 {
		t.Errorf("%d events wait that all have taken", n)
	}
	hear(s, 3)
	all[0].Close()
	if n, listeners := heldEvents(s); n != 0 || listeners != 0 {
		t.Errorf("%d events wait for %d listeners", n, listeners)
	}
}

// TestEventsEnd: a wait for an event ends with the queue, with the store, and with the
// context.
func TestEventsEnd(t *testing.T) {
	t.Parallel()
	s := &Store{events: &events{claims: &claims{}}, bindings: &bindings{}}
	waiting := func(ctx context.Context, e *Events) <-chan error {
		got := make(chan error, 1)
		go func() {
			_, err := e.Next(ctx)
			got <- err
		}()
		return got
	}
	ctx, stop := context.WithCancel(t.Context())
	e := s.Listen()
	got := waiting(ctx, e)
	stop()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("the context has ended: %v", err)
	}
	got = waiting(t.Context(), e)
	e.Close()
	e.Close()
	if err := <-got; !errors.Is(err, ErrClosed) {
		t.Errorf("the queue has ended: %v", err)
	}
	late := s.Listen()
	hear(s, 1)
	s.events.close()
	if ev, err := late.Next(t.Context()); err != nil || ev.Key != "0" {
		t.Errorf("what came before the store's end: %+v, %v", ev, err)
	}
	if _, err := late.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("the store has ended: %v", err)
	}
	late.Close()
	if _, err := s.Listen().Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("listening after the end: %v", err)
	}
	if _, listeners := heldEvents(s); listeners != 0 {
		t.Errorf("%d queues are left", listeners)
	}
}

// heldEvents returns the number of waiting events, and of listeners.
func heldEvents(s *Store) (waiting, listeners int) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	return len(s.events.recent), len(s.events.queues)
}

// TestEventOf: permission to receive an event, and its text.
func TestEventOf(t *testing.T) {
	t.Parallel()
	s := &Store{events: &events{claims: &claims{}}, bindings: &bindings{}}
	e := s.Listen()
	defer e.Close()
	s.events.emit(EventPublished, "k", &metadata.Inode{Ino: 17, UID: 5, GID: 6, Mode: 0o640, Size: 9, Device: "sim0"})
	ev, err := e.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		who  Caller
		want bool
	}{
		{Caller{}, true},
		{Caller{UID: 5}, true},
		{Caller{UID: 7, GID: 6}, true},
		{Caller{UID: 7, GID: 7, Groups: []uint32{}}, false},
	} {
		if got := ev.MayRead(c.who); got != c.want {
			t.Errorf("%+v may hear: %v", c.who, got)
		}
	}
	ev.Time = ""
	line, err := json.Marshal(ev)
	if want := `{"seq":1,"time":"","event":"published","key":"k","ino":17,"device":"sim0","size":9}`; err != nil || string(line) != want {
		t.Errorf("%s, %v", line, err)
	}
}

// TestEventsCostOfALaggard: while one listener lags behind, an event read by another
// one does not cost a copy of all the events that the first has not read.
func TestEventsCostOfALaggard(t *testing.T) {
	s := &Store{events: &events{claims: &claims{}}, bindings: &bindings{}}
	behind, ahead := s.Listen(), s.Listen()
	defer behind.Close()
	defer ahead.Close()
	next := func(e *Events) {
		if _, err := e.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const lag, steps = queueLen / 2, 200
	hear(s, lag)
	for range lag {
		next(ahead)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range steps {
		hear(s, 1)
		next(behind)
		next(ahead)
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / steps; each > 64<<10 {
		t.Errorf("%d bytes for each event", each)
	}
}
