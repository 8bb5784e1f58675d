package devices

import (
	"sync"
	"sync/atomic"
)

// Refs counts the users of something that is freed by the last of them. It is safe for
// concurrent use.
type Refs struct {
	// Free frees it. It is called once, by the last release.
	Free func()

	users atomic.Int32
}

// Keep adds a user until release is called; further calls of release do nothing. Except for
// the first call, the caller must itself be a user.
func (r *Refs) Keep() (release func()) {
	r.users.Add(1)
	return sync.OnceFunc(func() {
		if r.users.Add(-1) == 0 {
			r.Free()
		}
	})
}
