package heterotest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// Try runs one case of the suite in a world that may be faulty, and returns the faults that the
// case has found. It waits only briefly for events that must happen. It is for tests of the
// suite itself, which must detect a faulty world.
func Try(t testing.TB, w World, name string) (faults []string) {
	t.Helper()
	for _, c := range cases() {
		if c.name == name {
			r := &recorder{TB: t}
			r.run(func() { c.in(r, w, tryPatience) })
			return r.found()
		}
	}
	t.Fatalf("the suite has no case %q", name)
	return nil
}

// recorder is a testing.TB that records failures without failing the test to which it belongs.
type recorder struct {
	testing.TB
	ctx context.Context //nolint:containedctx // as long as the case

	mu sync.Mutex
	// +checklocks:mu
	faults []string
	// +checklocks:mu
	cleanups []func()
}

// run runs a case in a goroutine of its own, which the case may end, and then its cleanups.
func (r *recorder) run(body func()) {
	ctx, cancel := context.WithCancel(r.TB.Context())
	r.ctx = ctx
	r.apart(body)
	cancel()
	for next := r.cleanup(); next != nil; next = r.cleanup() {
		r.apart(next)
	}
}

func (r *recorder) apart(body func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		body()
	}()
	<-done
}

func (r *recorder) cleanup() (last func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.cleanups); n > 0 {
		last, r.cleanups = r.cleanups[n-1], r.cleanups[:n-1]
	}
	return last
}

func (r *recorder) found() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.faults
}

func (r *recorder) fault(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, text)
}

// What a test has, as far as the suite and its worlds use it.

func (r *recorder) Context() context.Context  { return r.ctx }
func (r *recorder) Log(...any)                {}
func (r *recorder) Logf(string, ...any)       {}
func (r *recorder) Error(args ...any)         { r.fault(fmt.Sprintln(args...)) }
func (r *recorder) Errorf(f string, a ...any) { r.fault(fmt.Sprintf(f, a...)) }
func (r *recorder) FailNow()                  { runtime.Goexit() }

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	r.FailNow()
}

func (r *recorder) Fatalf(f string, a ...any) {
	r.Errorf(f, a...)
	r.FailNow()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.faults) > 0
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}
