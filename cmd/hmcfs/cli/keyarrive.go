package cli

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

// eventStream tells what happens to keys from its beginning on.
type eventStream interface {
	// Next waits for the next event, or for the context's end.
	Next(ctx context.Context) (keyEvent, error)
	Close() error
}

// arrivals waits for keys, each on its own: one that is missing holds up no
// other.
type arrivals struct {
	// there says of each of some keys whether it is there now.
	there func(keys []string) []presence
	// listen begins a stream of events.
	listen func(ctx context.Context) (eventStream, error)
	// kinds are the events after which a key may be there.
	kinds []string
	// take is given keys that are there, by their places. It returns those that
	// are not there any more, to be waited for again.
	take func(ctx context.Context, places []int) (again []int)
	// fail is told of keys that never came.
	fail func(place int, err error)
}

// presence says whether a key is there, or why nobody knows.
type presence struct {
	is  bool
	err error
}

// maxLooks bounds the keys that are looked up at a time: those of other nodes take
// a round trip each.
const maxLooks = 16

// lookUp is the presence of keys by a function that looks one up.
func lookUp(keys []string, look func(key string) (bool, error)) []presence {
	out := make([]presence, len(keys))
	slots := make(chan struct{}, maxLooks)
	var looks sync.WaitGroup
	for i, key := range keys {
		slots <- struct{}{}
		looks.Go(func() {
			defer func() { <-slots }()
			out[i].is, out[i].err = look(key)
		})
	}
	looks.Wait()
	return out
}

// each takes every key that is there, or comes in time. A timeout of 0 waits
// for none. The error is one that concerns all keys that were not taken.
func (v *arrivals) each(ctx context.Context, keys []string, timeout time.Duration) error {
	w := newWaiting(keys)
	if timeout > 0 {
		events, err := v.listen(ctx)
		if err != nil {
			return err
		}
		defer v.follow(ctx, events, w)()
	}
	soon, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	candidates := w.all()
	for {
		last := soon.Err() != nil
		v.takeThose(ctx, w, candidates)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case w.len() == 0:
			return nil
		case timeout <= 0:
			v.giveUp(w, hetero.ErrNotFound)
			return nil
		case last: // they come and go
			v.giveUp(w, fmt.Errorf("waited %v: %w", timeout, hetero.ErrTimeout))
			return nil
		}
		var err error
		candidates, err = w.next(soon)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case soon.Err() != nil:
			v.giveUp(w, fmt.Errorf("waited %v: %w", timeout, hetero.ErrTimeout))
			return nil
		default:
			return err
		}
	}
}

// takeThose takes those of the candidates that are there.
func (v *arrivals) takeThose(ctx context.Context, w *waiting, candidates []int) {
	keys := make([]string, len(candidates))
	for i, place := range candidates {
		keys[i] = w.keys[place]
	}
	var now []int
	for i, p := range v.there(keys) {
		place := candidates[i]
		switch {
		case p.err != nil:
			v.fail(place, p.err)
			w.remove(place)
		case p.is:
			now = append(now, place)
		}
	}
	if len(now) == 0 {
		return
	}
	again := v.take(ctx, now)
	for _, place := range now {
		if !slices.Contains(again, place) {
			w.remove(place)
		}
	}
}

func (v *arrivals) giveUp(w *waiting, err error) {
	for _, place := range w.all() {
		v.fail(place, err)
	}
}

// follow notes the keys of events until it is ended, which it returns the
// function for.
func (v *arrivals) follow(ctx context.Context, events eventStream, w *waiting) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			e, err := events.Next(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				w.stop(fmt.Errorf("wait for events: %w", err))
				return
			}
			switch {
			case e.Kind == eventDropped:
				w.note("", true)
			case slices.Contains(v.kinds, e.Kind):
				w.note(e.Key, false)
			}
		}
	}()
	return func() {
		cancel()
		_ = events.Close() // it was only read
		<-over
	}
}

// waiting is the keys that have not come yet. Keys are of two sides: notes of
// events come from one goroutine, all else from another.
type waiting struct {
	keys   []string
	places map[string]int // of keys that are waited for; the waiter's
	signal chan struct{}  // has room for one

	mu sync.Mutex
	// noted are keys of events since the last next.
	// +checklocks:mu
	noted map[string]struct{}
	// every says that events were missed, so that each key may be there.
	// +checklocks:mu
	every bool
	// err is why there will be no more events.
	// +checklocks:mu
	err error
}

func newWaiting(keys []string) *waiting {
	w := &waiting{
		keys: keys, places: make(map[string]int, len(keys)),
		signal: make(chan struct{}, 1), noted: map[string]struct{}{},
	}
	for i, key := range keys {
		w.places[key] = i
	}
	return w
}

func (w *waiting) len() int { return len(w.places) }

func (w *waiting) remove(place int) { delete(w.places, w.keys[place]) }

// all are the places that are waited for, in order.
func (w *waiting) all() []int {
	out := make([]int, 0, len(w.places))
	for _, place := range w.places {
		out = append(out, place)
	}
	slices.Sort(out)
	return out
}

// note notes a key, or that each may be meant. Keys of others are forgotten by
// next, which is called soon.
func (w *waiting) note(key string, every bool) {
	w.mu.Lock()
	if w.every = w.every || every || len(w.noted) > hetero.MaxKeys; w.every {
		clear(w.noted)
	} else {
		w.noted[key] = struct{}{}
	}
	w.mu.Unlock()
	w.wake()
}

func (w *waiting) stop(err error) {
	w.mu.Lock()
	w.err = err
	w.mu.Unlock()
	w.wake()
}

func (w *waiting) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// next waits until keys that are waited for may be there, and returns their
// places. What was noted before the context ended is told still.
func (w *waiting) next(ctx context.Context) ([]int, error) {
	for {
		places, err := w.noteworthy()
		if len(places) > 0 || err != nil {
			return places, err
		}
		select {
		case <-w.signal:
		case <-ctx.Done():
			if places, _ := w.noteworthy(); len(places) > 0 {
				return places, nil
			}
			return nil, ctx.Err()
		}
	}
}

func (w *waiting) noteworthy() ([]int, error) {
	w.mu.Lock()
	noted, every, err := w.noted, w.every, w.err
	w.noted, w.every = map[string]struct{}{}, false
	w.mu.Unlock()
	if every {
		return w.all(), nil
	}
	var out []int
	for key := range noted {
		if place, wanted := w.places[key]; wanted {
			out = append(out, place)
		}
	}
	slices.Sort(out)
	if len(out) > 0 {
		return out, nil
	}
	return nil, err
}
