package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// workers is the number of keys of one call that are transferred at a time: enough to hide the
// per-key overhead.
const workers = 8

// slowKey is the mean time for a key from which on goroutines are started for the others.
const slowKey = 20 * time.Microsecond

// fewKeys is the number of keys after which the time is looked at less often, once for as many, unless
// a key may take as long as another node does.
const fewKeys = 8

// plan is a call whose keys may not exist yet.
type plan struct {
	keys []string
	// published selects publications instead of keys.
	published bool
	// timeout bounds the wait for a missing key; late is its error when the time is over.
	timeout time.Duration
	late    error
	// try executes the call for the i-th key. For a missing key it is called again when the
	// key may exist.
	try func(ctx context.Context, i int) error
	// burst is used by try while one goroutine tries many keys; nil for none.
	burst *objects.Burst
}

// missing reports whether err means that a key does not exist.
func missing(err error) bool { return errors.Is(err, metadata.ErrNotExist) }

// unasked returns err if it means that a node that may have the key could not be asked, and
// nil otherwise.
func unasked(err error) error {
	if _, is := errors.AsType[*cluster.UnaskedError](err); is {
		return err
	}
	return nil
}

// collect executes a plan and returns the results.
func (c *Client) collect(ctx context.Context, p plan) hetero.Results {
	out := make(hetero.Results, len(p.keys))
	c.carryOut(ctx, p, func(i int, err error) { out[i] = hetero.Result{Key: p.keys[i], Err: err} })
	return out
}

// carryOut executes a plan and reports each key when it completes, from any goroutine, exactly
// once. It returns after the last one.
func (c *Client) carryOut(ctx context.Context, p plan, done func(i int, err error)) {
	w := &waiter{client: c, plan: p, done: done}
	w.carryOut(ctx)
}

func (w *waiter) carryOut(ctx context.Context) {
	w.first(ctx)
	if w.plan.timeout > 0 {
		w.await(ctx)
	}
	for _, i := range w.left() {
		err := w.client.failure(ctx.Err())
		if err == nil {
			err = w.tooLate(i)
		}
		w.done(i, err)
	}
}

// waiter executes a plan.
type waiter struct {
	client *Client
	plan   plan
	done   func(i int, err error)

	mu sync.Mutex
	// absent holds the keys that are not done, by index; nil if all were there at once.
	// +checklocks:mu
	absent map[int]progress
}

// progress is the state of a key that did not exist.
type progress struct {
	// trying is set during an attempt, again if the key has had an event since the attempt
	// began.
	trying, again bool
	// unasked is the reason why it is unknown whether the key exists, or nil.
	unasked error
}

// left returns the indices of the keys that are not done, in order.
func (w *waiter) left() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.absent) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(w.absent))
}

// first tries all keys once. It begins alone: small keys in host memory take less time than it
// takes to start goroutines.
func (w *waiter) first(ctx context.Context) {
	n, from, begun, asks := len(w.plan.keys), 0, time.Now(), w.client.keys.CanWait()
	quick := func() bool {
		return !asks && from > fewKeys && from%fewKeys != 0 || time.Since(begun) <= time.Duration(from)*slowKey
	}
	if w.plan.burst != nil && n > fewKeys {
		w.plan.burst.Begin(w.client.holder)
		defer w.plan.burst.End() // also after a panic
	}
	for from < n && (from == 0 || quick()) {
		w.firstOf(ctx, from)
		from++
	}
	if from < n {
		w.plan.burst.End() // the others are tried by several goroutines
		w.others(ctx, from)
	}
}

// others tries all keys from one on, several at a time.
func (w *waiter) others(ctx context.Context, from int) {
	_ = objects.Parallel(ctx, len(w.plan.keys)-from, workers, func(ctx context.Context, i int) error {
		w.firstOf(ctx, from+i)
		return nil // each key has its own error
	})
}

func (w *waiter) firstOf(ctx context.Context, i int) {
	err := w.tryOnce(ctx, i)
	if err == nil {
		w.done(i, nil)
		return
	}
	if missing(err) || unasked(err) != nil {
		w.mu.Lock()
		if w.absent == nil {
			w.absent = map[int]progress{}
		}
		w.absent[i] = progress{unasked: unasked(err)}
		w.mu.Unlock()
	} else {
		w.done(i, w.client.failure(err))
	}
}

func (w *waiter) tryOnce(ctx context.Context, i int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.plan.try(ctx, i)
}

// await tries absent keys whenever they may have appeared, until all are done, or the time is
// over. Attempts in progress at that time are completed.
func (w *waiter) await(ctx context.Context) {
	left := w.left()
	if len(left) == 0 {
		return
	}
	// The event of a key is sent after the key is created: a key created before the queue
	// existed is found by the next attempt, a later one is in the queue.
	events := w.client.store.Listen()
	defer events.Close()
	waiting, enough := context.WithTimeout(ctx, w.plan.timeout)
	defer enough()
	places := make(map[string]int, len(left))
	for _, i := range left {
		places[w.plan.keys[i]] = i
	}
	r := retrier{waiter: w, slots: make(chan struct{}, workers), allDone: enough}
	r.all(ctx)
	stop := w.watch(waiting, places, func(i int) { r.one(ctx, i) })
	for waiting.Err() == nil {
		e, err := events.Next(waiting)
		if err != nil {
			break // the time is over, all are done, or the store has closed
		}
		switch e.Kind {
		case objects.EventDropped:
			r.all(ctx)
		case objects.EventCreated, objects.EventPublished:
			if i, ours := places[e.Key]; ours && w.plan.published == (e.Kind == objects.EventPublished) {
				r.came(ctx, i)
			}
		default: // no key has appeared
		}
	}
	stop()
	r.work.Wait()
}

// watch calls came when a key may have appeared on another node.
func (w *waiter) watch(ctx context.Context, places map[string]int, came func(i int)) (stop func()) {
	return w.client.keys.Watch(ctx, w.plan.published, slices.Collect(maps.Keys(places)), func(key string) {
		if i, ours := places[key]; ours {
			came(i)
		}
	})
}

// retrier tries absent keys, a few at a time.
type retrier struct {
	waiter *waiter
	slots  chan struct{}
	work   sync.WaitGroup
	// allDone is called when no key is absent any more.
	allDone func()
}

func (r *retrier) all(ctx context.Context) {
	for _, i := range r.waiter.left() {
		r.one(ctx, i)
	}
}

// one tries a key, unless it is done; if an attempt is in progress, its goroutine tries the
// key again afterwards.
func (r *retrier) one(ctx context.Context, i int) {
	if begun, _ := r.begin(i); begun {
		r.start(ctx, i)
	}
}

// came is one for a key that has appeared. If the call waits for no other, the caller itself tries it: to wake
// another thread, perhaps of a processor that sleeps, takes longer than all else but the copy.
func (r *retrier) came(ctx context.Context, i int) {
	switch begun, last := r.begin(i); {
	case begun && last:
		r.attempt(ctx, i)
	case begun:
		r.start(ctx, i)
	}
}

// begin records that a key is tried, and reports whether the caller has to do so, and whether no other key is absent.
func (r *retrier) begin(i int) (begun, last bool) {
	w := r.waiter
	w.mu.Lock()
	defer w.mu.Unlock()
	p, absent := w.absent[i]
	if absent {
		w.absent[i] = progress{trying: true, again: p.trying, unasked: p.unasked}
	}
	return absent && !p.trying, len(w.absent) == 1
}

func (r *retrier) start(ctx context.Context, i int) {
	r.slots <- struct{}{}
	r.work.Go(func() {
		defer func() { <-r.slots }()
		r.attempt(ctx, i)
	})
}

func (r *retrier) attempt(ctx context.Context, i int) {
	for again := true; again; {
		again = r.finish(i, r.waiter.tryOnce(ctx, i))
	}
}

// finish records the result of an attempt, and reports whether to try again.
func (r *retrier) finish(i int, err error) (again bool) {
	w := r.waiter
	w.mu.Lock()
	if missing(err) || unasked(err) != nil {
		again = w.absent[i].again
		w.absent[i] = progress{trying: again, unasked: unasked(err)}
		w.mu.Unlock()
		return again
	}
	delete(w.absent, i)
	left := len(w.absent)
	w.mu.Unlock()
	w.done(i, w.client.failure(err))
	if left == 0 {
		r.allDone()
	}
	return false
}

// tooLate returns the error of a key that did not appear in time. If a node could not be
// asked, it is unknown whether the key existed.
func (w *waiter) tooLate(i int) error {
	w.mu.Lock()
	unasked := w.absent[i].unasked
	w.mu.Unlock()
	switch {
	case unasked != nil && w.plan.timeout == 0:
		return w.client.failure(unasked)
	case unasked != nil:
		return fmt.Errorf("%w: waited for %v, and %w", w.plan.late, w.plan.timeout, unasked)
	case w.plan.timeout == 0:
		return w.plan.late
	}
	return fmt.Errorf("%w: waited for %v", w.plan.late, w.plan.timeout)
}
