package heterotest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

const (
	// runPatience is the time for which Run waits for events that must happen, and tryPatience
	// that of Try, which expects that they may not happen.
	runPatience = 60 * time.Second
	tryPatience = time.Second
	// moment is the time for which a case waits for events that must not happen.
	moment = 50 * time.Millisecond
)

// env is one case: its world, its keys, and the memory that it checks.
type env struct {
	testing.TB
	world World
	rand  *rand.Rand
	// prefix begins all keys of the case.
	prefix string
	// made holds the keys that keys has created, except for very large sets.
	made []string
	// patience is the time for which the case waits for events that must happen.
	patience time.Duration
	buffers  []*buffer
}

func newEnv(t testing.TB, w World, patience time.Duration) *env {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("the case's random numbers are of seed %#x", seed)
	return &env{TB: t, world: w, rand: rand.New(rand.NewPCG(seed, 1)), prefix: fmt.Sprintf("%016x", seed), patience: patience}
}

// long returns a timeout for calls that is never reached: their effects must be visible before.
func (e *env) long() time.Duration { return 3 * e.patience }

// near and far return the devices of a case: the same device if the world does not have two.
func (e *env) near() devices.Name { return e.world.Devices()[0] }
func (e *env) far() devices.Name  { return e.world.Devices()[len(e.world.Devices())-1] }

// key returns a key of the case.
func (e *env) key(name string) string { return e.prefix + "-" + name }

// keys returns n keys of the case.
func (e *env) keys(name string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = e.key(fmt.Sprintf("%s-%d", name, i))
	}
	if n <= tidyKeys {
		e.made = append(e.made, out...)
	}
	return out
}

// tidyKeys is the number of keys that tidy removes at a time. Cases with more remove them
// themselves.
const tidyKeys = 1000

// tidy removes the case's keys, so that they use no space in the next one.
func (e *env) tidy() {
	e.Helper()
	slices.Sort(e.made)
	u := e.user()
	for some := range slices.Chunk(slices.Compact(e.made), tidyKeys) {
		u.drop(some)
	}
}

// ok ends the case if there is an error.
func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// refused checks that a call failed as a whole, without results.
func (e *env) refused(what string, results any, err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("%s: error %v, want %v", what, err, want)
	}
	if n := fmt.Sprintf("%v", results); n != "[]" && n != "<nil>" {
		e.Errorf("%s: results %s beside the error of the whole call", what, n)
	}
}

// done checks that a call succeeded for every key, and skipped none.
func (e *env) done(keys []string, r hetero.Results, err error) {
	e.Helper()
	e.outcome(keys, r, err, nil)
	for _, one := range r {
		if one.Skipped {
			e.Fatalf("key %q was skipped", one.Key)
		}
	}
}

// outcome checks the results of a call: the keys that failed, and their errors; all others
// succeeded. A call must not succeed if all keys failed, and must not fail if some keys
// succeeded.
func (e *env) outcome(keys []string, r hetero.Results, err error, fails map[string]error) {
	e.Helper()
	if len(r) != len(keys) {
		e.Fatalf("%d results for %d keys: %v", len(r), len(keys), err)
	}
	failed := 0
	for i, key := range keys {
		want := fails[key]
		switch {
		case r[i].Key != key:
			e.Fatalf("result %d is of key %q, want %q", i, r[i].Key, key)
		case want == nil && r[i].Err != nil:
			e.Fatalf("key %q: %v", key, r[i].Err)
		case want != nil && !errors.Is(r[i].Err, want):
			e.Fatalf("key %q: error %v, want %v", key, r[i].Err, want)
		case want != nil:
			failed++
		}
	}
	if all := failed == len(keys); all != (err != nil) {
		e.Fatalf("the call's error is %v, and %d of %d keys failed", err, failed, len(keys))
	}
	if len(r.Failed()) != failed {
		e.Fatalf("%d results are listed as failed, want %d", len(r.Failed()), failed)
	}
}

// failing returns the same error for each of some keys.
func failing(err error, keys ...string) map[string]error {
	out := make(map[string]error, len(keys))
	for _, key := range keys {
		out[key] = err
	}
	return out
}

// await waits for a future's end.
func (e *env) await(f *hetero.Future) error {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), e.patience)
	defer cancel()
	err := f.Wait(ctx)
	select {
	case <-f.Done():
	default:
		e.Fatalf("key %q: not ended in %v: %v", f.Key(), e.patience, err)
	}
	if !errors.Is(f.Err(), err) {
		e.Fatalf("key %q: Wait says %v, Err says %v", f.Key(), err, f.Err())
	}
	return err
}

// awaitAll checks that futures belong to keys, and end as expected.
func (e *env) awaitAll(keys []string, futures []*hetero.Future, fails map[string]error) {
	e.Helper()
	if len(futures) != len(keys) {
		e.Fatalf("%d futures for %d keys", len(futures), len(keys))
	}
	for i, f := range futures {
		if f.Key() != keys[i] {
			e.Fatalf("future %d is of key %q, want %q", i, f.Key(), keys[i])
		}
		if err, want := e.await(f), fails[keys[i]]; !errors.Is(err, want) || want == nil && err != nil {
			e.Fatalf("key %q: the future ended with %v, want %v", keys[i], err, want)
		}
	}
}

// pending checks that futures have not ended.
func (e *env) pending(futures []*hetero.Future) {
	e.Helper()
	for _, f := range futures {
		select {
		case <-f.Done():
			e.Fatalf("key %q: the future has ended already, with %v", f.Key(), f.Err())
		default:
		}
		if f.Err() != nil {
			e.Fatalf("key %q: an error before the end: %v", f.Key(), f.Err())
		}
	}
}

// awaitBatch waits for the end of a call in the background.
func (e *env) awaitBatch(b *hetero.Batch) (hetero.Results, error) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), e.patience)
	defer cancel()
	r, err := b.Wait(ctx)
	select {
	case <-b.Done():
	default:
		e.Fatalf("a call in the background has not ended in %v: %v", e.patience, err)
	}
	return r, err
}

// call is a call that runs in another goroutine.
type call struct {
	env     *env
	done    chan struct{}
	results hetero.Results
	err     error
}

// start runs a call in a goroutine of its own, which the case waits for. It returns when that runs:
// on a busy machine what follows would otherwise happen before the call.
func (e *env) start(f func() (hetero.Results, error)) *call {
	c := &call{env: e, done: make(chan struct{})}
	begun := make(chan struct{})
	go func() {
		defer close(c.done)
		close(begun)
		c.results, c.err = f()
	}()
	e.Cleanup(func() { <-c.done })
	<-begun
	return c
}

// wait returns the results of the call.
func (c *call) wait() (hetero.Results, error) {
	c.env.Helper()
	select {
	case <-c.done:
	case <-time.After(c.env.patience):
		c.env.Fatalf("a call has not returned in %v", c.env.patience)
	}
	return c.results, c.err
}

// isErr reports whether an error is one of several.
func isErr(err error, any ...error) bool {
	return slices.ContainsFunc(any, func(want error) bool { return errors.Is(err, want) })
}
