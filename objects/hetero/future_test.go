package hetero_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/objects/hetero"
)

// ended returns a context that has ended, by a deadline or a cancellation.
func ended(t *testing.T, deadline bool) context.Context {
	t.Helper()
	if deadline {
		ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
		t.Cleanup(cancel)
		return ctx
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestFuture(t *testing.T) {
	t.Parallel()
	f, settle := hetero.NewFuture("k")
	if f.Key() != "k" || f.Err() != nil {
		t.Errorf("a fresh future of %q: %v", f.Key(), f.Err())
	}
	if err := f.Wait(ended(t, true)); !errors.Is(err, hetero.ErrTimeout) {
		t.Errorf("wait with a deadline that is over: %v", err)
	}
	if err := f.Wait(ended(t, false)); !errors.Is(err, hetero.ErrInterrupted) {
		t.Errorf("wait that is cancelled: %v", err)
	}
	var told []string
	f.Then(func() { told = append(told, "first") })
	f.Then(func() { told = append(told, "second") })
	settle(hetero.ErrShape)
	<-f.Done()
	f.Then(func() { told = append(told, "late") })
	if len(told) != 3 || told[0] != "first" || told[2] != "late" {
		t.Errorf("told %v", told)
	}
	for range 100 { // a completed future takes precedence over the context
		if err := f.Wait(ended(t, false)); !errors.Is(err, hetero.ErrShape) {
			t.Fatalf("wait behind the end: %v", err)
		}
	}
	if !errors.Is(f.Err(), hetero.ErrShape) {
		t.Errorf("the error is %v", f.Err())
	}
}

// TestFutureThenAtOnce registers functions while a future completes: each is called once.
func TestFutureThenAtOnce(t *testing.T) {
	t.Parallel()
	for range 200 {
		f, settle := hetero.NewFuture("k")
		var followers, told sync.WaitGroup
		told.Add(4)
		for range 4 {
			followers.Go(func() { f.Then(told.Done) })
		}
		settle(nil)
		followers.Wait()
		told.Wait()
		if err := f.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBatch(t *testing.T) {
	t.Parallel()
	b, settle := hetero.NewBatch()
	if r, err := b.Wait(ended(t, true)); r != nil || !errors.Is(err, hetero.ErrTimeout) {
		t.Errorf("wait with a deadline that is over: %v, %v", r, err)
	}
	settle(hetero.Results{{Key: "a", Err: hetero.ErrLost}, {Key: "b"}})
	<-b.Done()
	for range 100 {
		if r, err := b.Wait(ended(t, false)); len(r) != 2 || err != nil {
			t.Fatalf("wait behind the end: %v, %v", r, err)
		}
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	lost := hetero.Result{Key: "a", Err: hetero.ErrLost}
	exist := hetero.Result{Key: "b", Err: hetero.ErrExist}
	well := hetero.Result{Key: "c", Skipped: true}
	for name, c := range map[string]struct {
		results hetero.Results
		failed  int
		outcome []error
	}{
		"nothing":  {},
		"all well": {results: hetero.Results{well, well}},
		"some":     {results: hetero.Results{lost, well, exist}, failed: 2},
		"none":     {results: hetero.Results{lost, exist}, failed: 2, outcome: []error{hetero.ErrLost, hetero.ErrExist}},
	} {
		if n := len(c.results.Failed()); n != c.failed {
			t.Errorf("%s: %d failed, want %d", name, n, c.failed)
		}
		if err := c.results.Err(); (err == nil) != (c.failed == 0) {
			t.Errorf("%s: the errors are %v", name, err)
		}
		outcome := c.results.Outcome()
		if (outcome == nil) != (c.outcome == nil) {
			t.Errorf("%s: the outcome is %v", name, outcome)
		}
		for _, want := range c.outcome {
			if !errors.Is(outcome, want) {
				t.Errorf("%s: the outcome is %v, want also %v", name, outcome, want)
			}
		}
	}
}

func TestContextError(t *testing.T) {
	t.Parallel()
	for from, want := range map[error]error{
		context.DeadlineExceeded: hetero.ErrTimeout, context.Canceled: hetero.ErrInterrupted, hetero.ErrIO: hetero.ErrIO,
	} {
		if got := hetero.ContextError(from); !errors.Is(got, want) {
			t.Errorf("%v is told as %v", from, got)
		}
	}
}
