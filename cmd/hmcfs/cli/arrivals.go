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

// contestPause is the interval at which keys are requested again that another client has
// reserved, or received, first.
const contestPause = 250 * time.Millisecond

// arrivals waits for keys independently: a missing key does not delay the others.
type arrivals struct {
	c hetero.Directory
	// published is set to wait for publications.
	published bool
	// take receives keys that exist, by their places in the call, a batch at a time. It
	// returns those that another client reserved or received first, which are then waited
	// for again.
	take func(ctx context.Context, places []int) (again []int)
	// fail receives keys that did not arrive in time, and other failures.
	fail func(place int, err error)
}

// arrival is the result of the wait for one key.
type arrival struct {
	place int
	err   error
}

// await is one wait for several keys.
type await struct {
	*arrivals

	keys    []string
	timeout time.Duration
	until   time.Time
	// came has room for every key, as each is requested by only one call at a time.
	came  chan arrival
	calls sync.WaitGroup
	// refused has room for the error of the first call that failed as a whole.
	refused chan error
	// contested are the places of keys that another client reserved or received first, and
	// asked those of keys that are being requested again.
	contested []int
	asked     map[int]bool
}

// each waits until every key has been taken or has failed. Its error applies to all keys
// that did neither.
func (v *arrivals) each(ctx context.Context, keys []string, timeout time.Duration) error {
	w := &await{
		arrivals: v, keys: keys, timeout: timeout, until: time.Now().Add(timeout),
		came: make(chan arrival, len(keys)), refused: make(chan error, 1), asked: map[int]bool{},
	}
	ctx, cancel := context.WithCancel(ctx)
	defer w.calls.Wait()
	defer cancel()
	w.ask(ctx, allPlaces(len(keys)), timeout)
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

// allPlaces returns the places of all keys of a call.
func allPlaces(keys int) []int {
	all := make([]int, keys)
	for i := range all {
		all[i] = i
	}
	return all
}

// ask requests keys in the background.
func (w *await) ask(ctx context.Context, places []int, timeout time.Duration) {
	keys := mapped(places, func(place int) string { return w.keys[place] })
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

// settle takes the keys that have arrived by now, and returns the number of keys that need
// no further wait.
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

// askAgain requests the contested keys again or, when the time is over, fails them, and
// returns the number of failed keys.
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
