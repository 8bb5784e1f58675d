package activity

import (
	"sync"
	"time"
)

// SlowAfter is the duration from which on an operation counts as slow.
const SlowAfter = 100 * time.Millisecond

// maxSlow bounds the operations that a SlowLog remembers.
const maxSlow = 64

// Slow is one operation that took long.
type Slow struct {
	// At is the time of its end.
	At   time.Time
	Name string
	Took time.Duration
	// PID and UID are 0 and -1 if the process is not known.
	PID, UID int
}

// SlowLog remembers the last slow operations. The zero value has none. Its methods may be called
// from any goroutine.
type SlowLog struct {
	mu sync.Mutex
	// ring has the operations in their order; the next one replaces ring[next] once it is full.
	// +checklocks:mu
	ring []Slow
	// +checklocks:mu
	next int
}

// Note remembers an operation that has just ended, if it took long.
func (l *SlowLog) Note(name string, took time.Duration, pid, uid int) {
	if took < SlowAfter {
		return
	}
	one := Slow{At: time.Now(), Name: name, Took: took, PID: pid, UID: uid}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ring) < maxSlow {
		l.ring = append(l.ring, one)
		return
	}
	l.ring[l.next] = one
	l.next = (l.next + 1) % maxSlow
}

// List returns the operations, the oldest first.
func (l *SlowLog) List() []Slow {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(append([]Slow{}, l.ring[l.next:]...), l.ring[:l.next]...)
}
