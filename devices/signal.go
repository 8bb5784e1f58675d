package devices

import (
	"context"
	"sync"
)

// Event is something that happens once: a stream reaching a point in its work, or a signal
// set by the host (Signal).
type Event interface {
	// Wait returns once the event has happened: the results of the work before it are then
	// in memory, visible to all. The error is that of the work before it, or the context's.
	Wait(ctx context.Context) error
	// Close releases the event's resources. A stream that waits for it still does.
	Close() error
}

// Keeper is an Event that holds resources of its device, which Close releases.
// Implementations of Stream call Keep for an event that their work will wait for, since its
// recorder may close it.
type Keeper interface {
	Event
	// Keep makes the event outlive Close until release is called.
	Keep() (release func())
}

// Signal is an Event that the host sets, for example when bytes for which a device's stream
// waits have arrived from the network. No device can observe the network itself, so the
// notification always goes through the host.
//
// It is safe for concurrent use.
type Signal struct {
	happened chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	set bool
	// +checklocks:mu
	err error
	// +checklocks:mu
	then []func(error)
}

var _ Event = (*Signal)(nil)

// NewSignal returns a signal that is not set.
func NewSignal() *Signal { return &Signal{happened: make(chan struct{})} }

// Set makes the event happen, or fail if err is not nil. Only the first call has an effect.
func (s *Signal) Set(err error) {
	s.mu.Lock()
	if s.set {
		s.mu.Unlock()
		return
	}
	s.set, s.err = true, err
	then := s.then
	s.then = nil
	close(s.happened) // before any function of Notify is called
	s.mu.Unlock()
	for _, fn := range then {
		fn(err)
	}
}

// Wait returns once the signal is set, with its error.
func (s *Signal) Wait(ctx context.Context) error {
	select {
	case <-s.happened:
		return s.Err()
	default:
	}
	select {
	case <-s.happened:
		return s.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Done returns a channel that is closed once the signal is set.
func (s *Signal) Done() <-chan struct{} { return s.happened }

// Err returns the error that the signal was set with; nil before.
func (s *Signal) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Notify has fn called once, when the signal is set: immediately if it already is. fn must not
// block.
func (s *Signal) Notify(fn func(error)) {
	s.mu.Lock()
	if !s.set {
		s.then = append(s.then, fn)
		s.mu.Unlock()
		return
	}
	err := s.err
	s.mu.Unlock()
	fn(err)
}

// Close does nothing.
func (s *Signal) Close() error { return nil }
