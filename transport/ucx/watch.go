package ucx

import (
	"errors"
	"fmt"
	"time"
)

// ErrStalled reports that there was no progress for too long.
var ErrStalled = errors.New("ucx: the peer makes no progress")

// looks is the number of times that a stall is checked for within the timeout.
const looks = 4

// stall ends a provider without progress while an operation is pending. Its
// fields are guarded by Provider.mu.
type stall struct {
	timer   *time.Timer
	timeout time.Duration
	// busy is the number of ops that have not completed.
	busy int
	// moved counts the rounds with progress, seen is its value at the last check,
	// idle the number of checks since it changed.
	moved, seen uint64
	idle        int
}

// look is called by the timer.
func (p *Provider) look() {
	p.mu.Lock()
	if p.life.Err() != nil {
		p.mu.Unlock()
		return
	}
	s := &p.stall
	if s.busy > 0 && s.moved == s.seen {
		s.idle++
	} else {
		s.idle = 0
	}
	s.seen = s.moved
	stalled := s.idle >= looks
	if !stalled {
		s.timer.Reset(s.timeout / looks)
	}
	p.mu.Unlock()
	if stalled {
		p.end(fmt.Errorf("transport ucx: no progress for %v: %w", s.timeout, ErrStalled))
	}
}
