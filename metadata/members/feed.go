package members

import (
	"slices"
	"sync"
)

// feed hands what happens to whoever wants to know, in order and one at a
// time. It has a goroutine only while there is something to hand on.
type feed[T any] struct {
	// calling is held while functions run, and is taken before mu.
	calling sync.Mutex

	mu sync.Mutex
	// +checklocks:mu
	queue []T
	// pushed counts all that were ever queued.
	// +checklocks:mu
	pushed uint64
	// +checklocks:mu
	running bool
	// +checklocks:mu
	listeners []*listener[T]
}

type listener[T any] struct {
	fn func(T)
	// since is the number of those that were queued before the listener came.
	since uint64
}

// on adds a listener for what is pushed from now on. The function that it
// returns takes it away and waits until it does not run.
func (f *feed[T]) on(fn func(T)) func() {
	l := &listener[T]{fn: fn}
	f.mu.Lock()
	l.since = f.pushed
	f.listeners = append(slices.Clip(f.listeners), l)
	f.mu.Unlock()
	return func() {
		f.calling.Lock()
		defer f.calling.Unlock()
		f.mu.Lock()
		defer f.mu.Unlock()
		var rest []*listener[T]
		for _, other := range f.listeners {
			if other != l {
				rest = append(rest, other)
			}
		}
		f.listeners = rest
	}
}

// push has the listeners called with what has happened. It does not wait.
func (f *feed[T]) push(what ...T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pushed += uint64(len(what))
	if len(f.listeners) == 0 || len(what) == 0 {
		return // those that are queued go their way
	}
	f.queue = append(f.queue, what...)
	if !f.running {
		f.running = true
		go f.run()
	}
}

func (f *feed[T]) run() {
	for f.next() {
	}
}

// next hands one on; false when there is none.
func (f *feed[T]) next() bool {
	f.calling.Lock()
	defer f.calling.Unlock()
	f.mu.Lock()
	if len(f.queue) == 0 {
		f.running = false
		f.queue = nil
		f.mu.Unlock()
		return false
	}
	what := f.queue[0]
	number := f.pushed - uint64(len(f.queue)) // of those before it
	f.queue = f.queue[1:]
	listeners := f.listeners
	f.mu.Unlock()
	for _, l := range listeners {
		if l.since <= number {
			l.fn(what)
		}
	}
	return true
}
