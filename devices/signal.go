package devices

import (
	"context"
	"sync"
)

// Event is something that happens once: that a stream has come to a place in
// its work, or that somebody has said so (Signal).
type Event interface {
	// Wait returns once it has happened: what came before it is in memory then,
	// for everybody. Its error is that of the work which should have come before,
	// or the context's.
	Wait(ctx context.Context) error
	// Close gives up what the event takes. A stream that waits for it goes on to.
	Close() error
}

// Keeper is an Event that takes something of its device, which Close gives up. What
// implements Stream calls Keep for an event that its work is going to wait for,
// since whoever has recorded it may close it.
type Keeper interface {
	Event
	// Keep has the event outlive Close until release is called.
	Keep() (release func())
}

// Notifier is an Event that can call back, so that nobody has to wait for it.
type Notifier interface {
	Event
	// Notify has fn called once, when the event has happened: at once if it has.
	// fn must not block.
	Notify(fn func(error))
}

// Signal is an Event that the host sets: that bytes have come from the network,
// say, for which a device's stream waits. No device sees the network by itself,
// so that word always goes by way of the host.
//
// It may be used from any goroutine.
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

var _ Notifier = (*Signal)(nil)

// NewSignal makes a signal that nobody has set.
func NewSignal() *Signal { return &Signal{happened: make(chan struct{})} }

// Set has the event happen, or fail where err is not nil. Only the first call
// counts.
func (s *Signal) Set(err error) {
	s.mu.Lock()
	if s.set {
		s.mu.Unlock()
		return
	}
	s.set, s.err = true, err
	then := s.then
	s.then = nil
	s.mu.Unlock()
	close(s.happened)
	for _, fn := range then {
		fn(err)
	}
}

// Wait returns once it is set, with its error.
func (s *Signal) Wait(ctx context.Context) error {
	select {
	case <-s.happened:
		return s.error()
	default:
	}
	select {
	case <-s.happened:
		return s.error()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Signal) error() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Notify calls fn once it is set.
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
