package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

// contestPause is the interval at which keys are asked for again that another client
// has reserved, or received, before this one could.
const contestPause = 250 * time.Millisecond

// arrivals waits for keys, each on its own: one that is missing holds up no other.
type arrivals struct {
	c hetero.Directory
	// published waits for publications.
	published bool
	// take is given keys that are there, by their places, a batch at a time. It returns
	// those that another client was faster with, which are waited for again.
	take func(ctx context.Context, places []int) (again []int)
	// fail is given keys that did not come in time, and other failures.
	fail func(place int, err error)
}

// arrival is the end of the wait for one key.
type arrival struct {
	place int
	err   error
}

// await is one wait for keys.
type await struct {
	*arrivals

	keys    []string
	timeout time.Duration
	until   time.Time
	// came has room for every key, each of which is asked for by one call at a time.
	came  chan arrival
	calls sync.WaitGroup
	// refused has room for the error of the first call as a whole.
	refused chan error
	// contested are the places of keys that another client was faster with, and asked
	// are those of keys that are being asked for again.
	contested []int
	asked     map[int]bool
}

// each waits until every key has been taken or has failed. The error is one that
// concerns all keys of which neither is true.
func (v *arrivals) each(ctx context.Context, keys []string, timeout time.Duration) error {
	w := &await{
		arrivals: v, keys: keys, timeout: timeout, until: time.Now().Add(timeout),
		came: make(chan arrival, len(keys)), refused: make(chan error, 1), asked: map[int]bool{},
	}
	ctx, cancel := context.WithCancel(ctx)
	defer w.calls.Wait()
	defer cancel()
	all := make([]int, len(keys))
	for i := range all {
		all[i] = i
	}
	w.ask(ctx, all, timeout)
	tick := time.NewTicker(contestPause)
	defer tick.Stop()
	for left := len(keys); left > 0; {
		select {
		case a := <-w.came:
			left -= w.settle(ctx, a)
		case <-tick.C:
			left -= w.askAgain(ctx)
		case err := <-w.refused:
			return err
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// ask asks for keys in the background.
func (w *await) ask(ctx context.Context, places []int, timeout time.Duration) {
	keys := make([]string, len(places))
	for i, place := range places {
		keys[i] = w.keys[place]
	}
	w.calls.Go(func() {
		err := w.c.Each(ctx, keys, w.published, timeout, func(i int, err error) { w.came <- arrival{places[i], err} })
		if err == nil {
			return
		}
		select {
		case w.refused <- err:
		default:
		}
	})
}

// settle takes the keys that have come by now, and returns how many need no more wait.
func (w *await) settle(ctx context.Context, a arrival) (settled int) {
	var there []int
	for more := true; more; {
		again := w.asked[a.place]
		delete(w.asked, a.place)
		switch {
		case a.err == nil:
			there = append(there, a.place)
		case ctx.Err() != nil:
			return 0
		case again && errors.Is(a.err, hetero.ErrTimeout) && time.Now().Before(w.until):
			w.contested = append(w.contested, a.place)
		default:
			w.fail(a.place, a.err)
			settled++
		}
		select {
		case a = <-w.came:
		default:
			more = false
		}
	}
	if len(there) == 0 {
		return settled
	}
	slices.Sort(there)
	again := w.take(ctx, there)
	w.contested = append(w.contested, again...)
	return settled + len(there) - len(again)
}

// askAgain asks for the contested keys or, when the time is over, fails them, and
// returns how many it has failed.
func (w *await) askAgain(ctx context.Context) (failed int) {
	if len(w.contested) == 0 || len(w.asked) > 0 {
		return 0
	}
	places := w.contested
	w.contested = nil
	left := time.Until(w.until)
	if left <= 0 {
		for _, place := range places {
			w.fail(place, fmt.Errorf("waited %v: %w", w.timeout, hetero.ErrTimeout))
		}
		return len(places)
	}
	for _, place := range places {
		w.asked[place] = true
	}
	w.ask(ctx, places, min(left, contestPause))
	return 0
}
