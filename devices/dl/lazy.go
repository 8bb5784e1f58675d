package dl

import "sync"

// Lazy holds a value that a family derives from an open library, created at the first use.
// The zero value is ready to use. It is safe for concurrent use and must not be copied.
type Lazy[T any] struct {
	mu sync.Mutex
	// made is set once value is set.
	// +checklocks:mu
	made bool
	// +checklocks:mu
	value T
}

// Get returns the value that load created. Until load succeeds, each Get calls it again,
// one call at a time, and returns its error: a library may be installed, and a driver
// loaded, while the process runs.
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
