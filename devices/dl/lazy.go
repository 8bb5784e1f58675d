package dl

import "sync"

// Lazy has what a family makes of an open library, made at the first use. The
// zero value is ready to use, from any goroutine, and must not be copied.
type Lazy[T any] struct {
	mu sync.Mutex
	// made says that value is set.
	// +checklocks:mu
	made bool
	// +checklocks:mu
	value T
}

// Get returns what load made. Until it has made something each Get calls it
// again, one at a time, and returns its error: a library may be installed, and
// a driver be loaded, while the process runs.
func (l *Lazy[T]) Get(load func() (T, error)) (T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.made {
		value, err := load()
		if err != nil {
			var none T
			return none, err
		}
		l.value, l.made = value, true
	}
	return l.value, nil
}
