package fault

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
)

// Matcher reports whether a rule applies to an operation. It may count, so it is called exactly
// once for each operation that the matchers before it let through.
type Matcher func(op string) bool

// OnOp matches the operations with the given names.
func OnOp[Op ~string](ops ...Op) Matcher {
	return func(op string) bool { return slices.Contains(ops, Op(op)) }
}

// OnIndex matches one operation: the n-th that it is called for, from 0.
func OnIndex(n int64) Matcher {
	var next atomic.Int64
	return func(string) bool { return next.Add(1)-1 == n }
}

// FromIndex matches the n-th operation that it is called for, from 0, and all that follow.
func FromIndex(n int64) Matcher {
	var next atomic.Int64
	return func(string) bool { return next.Add(1)-1 >= n }
}

// Every matches each n-th operation that it is called for: with 3 the 3rd, the 6th and so on. n
// is greater than 0.
func Every(n int64) Matcher {
	var asked atomic.Int64
	return func(string) bool { return asked.Add(1)%n == 0 }
}

// Randomly matches with probability p. Equal seeds yield equal decisions for equal sequences of
// operations.
func Randomly(p float64, seed uint64) Matcher {
	var mu sync.Mutex
	source := rand.New(rand.NewPCG(seed, 0))
	return func(string) bool {
		mu.Lock()
		defer mu.Unlock()
		return source.Float64() < p
	}
}

// Toggle is a switch, initially off.
type Toggle struct{ on atomic.Bool }

// Set turns the switch on or off.
func (t *Toggle) Set(on bool) { t.on.Store(on) }

// On is a Matcher that matches while the switch is on.
func (t *Toggle) On(string) bool { return t.on.Load() }

// Counter counts the operations that it is called for.
type Counter struct{ n atomic.Int64 }

// Count is a Matcher that matches everything and counts it.
func (c *Counter) Count(string) bool {
	c.n.Add(1)
	return true
}

// Load returns the count.
func (c *Counter) Load() int64 { return c.n.Load() }
