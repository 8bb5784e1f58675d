package fault

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Injector decides on faults of operations named by Op. A nil Injector injects none.
type Injector[Op ~string] struct {
	rules    atomic.Pointer[[]Rule]
	injected atomic.Int64

	mu sync.Mutex
	// +checklocks:mu
	seen map[Op]int64
}

// New returns an Injector with the given rules.
func New[Op ~string](rules ...Rule) *Injector[Op] {
	i := &Injector[Op]{seen: make(map[Op]int64)}
	i.Set(rules...)
	return i
}

// Set replaces the rules. Operations that are being decided at that moment may still follow the
// old ones.
func (i *Injector[Op]) Set(rules ...Rule) { i.rules.Store(&rules) }

// Before is called before an operation and determines its result: with nil the operation
// proceeds, an error makes it fail with that error. It returns after the delays that the rules
// require; the end of the context cuts them short, and its error is returned. All rules see
// every operation, up to the first rule that fails it.
func (i *Injector[Op]) Before(ctx context.Context, op Op) error {
	if i == nil {
		return nil
	}
	i.note(op)
	for _, r := range *i.rules.Load() {
		if !r.matches(string(op)) {
			continue
		}
		i.injected.Add(1)
		if err := r.effect(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Injected returns how many times an effect has happened.
func (i *Injector[Op]) Injected() int64 { return i.injected.Load() }

// Seen returns the number of operations seen, by kind.
func (i *Injector[Op]) Seen() map[Op]int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.seen)
}

// note counts an operation.
func (i *Injector[Op]) note(op Op) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen[op]++
}

// Rule is an effect and the condition under which it happens.
type Rule struct {
	effect func(context.Context) error
	when   []Matcher
}

// matches reports whether every matcher lets the operation through.
func (r Rule) matches(op string) bool {
	for _, m := range r.when {
		if !m(op) {
			return false
		}
	}
	return true
}

// Fail makes matching operations fail with err.
func Fail(err error, when ...Matcher) Rule {
	return Rule{when: when, effect: func(context.Context) error { return err }}
}

// Delay delays matching operations.
func Delay(d time.Duration, when ...Matcher) Rule {
	return Rule{when: when, effect: func(ctx context.Context) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
}

// Call makes matching operations call f, which may block, and fail if f does. It lets a test
// act in the middle of an operation.
func Call(f func() error, when ...Matcher) Rule {
	return Rule{when: when, effect: func(context.Context) error { return f() }}
}
