package members

import (
	"slices"
	"sync"
)

// feed delivers events to listeners, in order and one at a time. It has a goroutine only
// while there are events to deliver.
type feed struct {
	// calling is held while listeners run, and is acquired before mu.
	calling sync.Mutex

	mu sync.Mutex
	// +checklocks:mu
	queue []Event
	// pushed counts all events that were ever pushed.
	// +checklocks:mu
	pushed uint64
	// +checklocks:mu
	running bool
	// +checklocks:mu
	listeners []*listener
}

type listener struct {
	fn func(Event)
	// since is the number of events pushed before the listener was added.
	since uint64
}

// on adds a listener for events pushed from now on. The returned function removes it, after
// waiting for a running call to return.
func (f *feed) on(fn func(Event)) func() {
	l := &listener{fn: fn}
	f.mu.Lock()
	l.since = f.pushed
	f.listeners = append(slices.Clip(f.listeners), l)
	f.mu.Unlock()
	return func() {
		f.calling.Lock()
		defer f.calling.Unlock()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.listeners = slices.DeleteFunc(slices.Clone(f.listeners), func(o *listener) bool { return o == l })
	}
}

// push queues events for the listeners. It does not wait.
func (f *feed) push(what ...Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pushed += uint64(len(what))
	if len(f.listeners) == 0 || len(what) == 0 {
		return // events that are already queued are still delivered
	}
	f.queue = append(f.queue, what...)
	if !f.running {
		f.running = true
		go f.run()
	}
}

func (f *feed) run() {
	for f.next() {
	}
}

// next delivers one event; it returns false when there is none.
func (f *feed) next() bool {
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
	number := f.pushed - uint64(len(f.queue)) // of events pushed before it
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
