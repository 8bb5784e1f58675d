package devices

import (
	"sync"
	"sync/atomic"
)

// Refs counts the users of something that goes with the last of them. It is safe
// for concurrent use.
type Refs struct {
	// Free gives it up. It is called once, by the last release.
	Free func()

	users atomic.Int32
}

// Keep adds a user until release is called, whose further calls do nothing. Only
// a user may add another, but for the first.
func (r *Refs) Keep() (release func()) {
	r.users.Add(1)
	return sync.OnceFunc(func() {
		if r.users.Add(-1) == 0 {
			r.Free()
		}
	})
}
