package ucx

import (
	"sync"
	"sync/atomic"

	"github.com/ebitengine/purego"
)

// failures brings the library's reports of lost peers to those who have them.
type failures struct {
	mu sync.Mutex
	// +checklocks:mu
	last uintptr
	// +checklocks:mu
	slots map[uintptr]*atomic.Int32
}

// callback is the address of report for C. It is called once.
func (f *failures) callback() uintptr {
	return purego.NewCallback(func(id, _, status uintptr) { f.report(id, statusOf(status)) })
}

// report notes a failure. The library calls it while a worker makes progress.
func (f *failures) report(id uintptr, s Status) {
	f.mu.Lock()
	slot := f.slots[id]
	f.mu.Unlock()
	if slot != nil {
		slot.CompareAndSwap(0, int32(s))
	}
}

// watch returns an id, and where the failure that is reported under it is
// noted: 0 is none.
func (f *failures) watch() (id uintptr, failure *atomic.Int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slots == nil {
		f.slots = map[uintptr]*atomic.Int32{}
	}
	f.last++
	failure = &atomic.Int32{}
	f.slots[f.last] = failure
	return f.last, failure
}

// forget ends a watch.
func (f *failures) forget(id uintptr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.slots, id)
}
