package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/transport/wire"
)

const (
	// spin is the time that a waiter polls before it sleeps: longer than a
	// sleeper takes to wake on a busy machine, so that a sleep on one side does
	// not make both sides sleep repeatedly.
	spin = 100 * time.Microsecond
	// spinPolls is the number of polls between two checks of the clock.
	spinPolls = 64
)

// errRing reports impossible numbers in a ring.
var errRing = errors.New("shm: the peer violates the protocol of the ring")

// sender is our end of the peer's ring.
type sender struct {
	ring *ring
	// turn is held by the goroutine that waits for room.
	turn chan struct{}

	mu sync.Mutex
	// sent is head, and received is the last tail that was read.
	// +checklocks:mu
	sent uint64
	// +checklocks:mu
	received uint64
	// +checklocks:mu
	ended bool
}

// receiver is our end of our own ring.
type receiver struct {
	ring *ring
	turn chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	received uint64
	// left holds the tags that were in the ring at the end.
	// +checklocks:mu
	left []wire.Tag
	// +checklocks:mu
	ended bool
}

func newTurn() chan struct{} { return make(chan struct{}, 1) }

// try sends a tag if there is room.
func (s *sender) try(t wire.Tag) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false, errEnded()
	}
	at := s.ring.at
	if s.sent-s.received >= slots {
		s.received = at.tail.Load()
		if free := s.sent - s.received; free > slots {
			return false, errRing
		} else if free == slots {
			return false, nil
		}
	}
	at.slots[s.sent%slots].Store(uint64(t))
	s.sent++
	at.head.Store(s.sent)
	if at.sleeping.Load() != 0 && at.sleeping.CompareAndSwap(1, 0) {
		knock(s.ring.filled)
	}
	return true, nil
}

// send sends a tag once there is room.
func (s *sender) send(ctx context.Context, t wire.Tag) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return await(ctx, s.turn, "the peer does not receive", s.ring.emptied, s.wait, func() (bool, error) { return s.try(t) })
}

// wait sets the ring's flag that the sender waits for room.
func (s *sender) wait() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errEnded()
	}
	s.ring.at.waiting.Store(1)
	return nil
}

// try receives a tag if there is one.
func (r *receiver) try() (t wire.Tag, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		if len(r.left) == 0 {
			return 0, false, errEnded()
		}
		t, r.left = r.left[0], r.left[1:]
		return t, true, nil
	}
	return r.takeLocked()
}

// +checklocks:r.mu
func (r *receiver) takeLocked() (t wire.Tag, ok bool, err error) {
	at := r.ring.at
	there := at.head.Load() - r.received
	if there == 0 {
		return 0, false, nil
	}
	if there > slots {
		return 0, false, errRing
	}
	t = wire.Tag(at.slots[r.received%slots].Load())
	r.received++
	at.tail.Store(r.received)
	if at.waiting.Load() != 0 && at.waiting.CompareAndSwap(1, 0) {
		knock(r.ring.emptied)
	}
	return t, true, nil
}

// next returns the next tag, and waits for it.
func (r *receiver) next(ctx context.Context) (t wire.Tag, err error) {
	err = await(ctx, r.turn, "the peer does not send", r.ring.filled, r.wait, func() (ok bool, err error) {
		t, ok, err = r.try()
		return ok, err
	})
	return t, err
}

// wait sets the ring's flag that the receiver sleeps.
func (r *receiver) wait() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil // left is read without it
	}
	r.ring.at.sleeping.Store(1)
	return nil
}

// await tries, and otherwise waits until it succeeds, once it has the turn. silent is
// the error's text if the context ends before that.
func await(ctx context.Context, turn chan struct{}, silent string, bell *os.File, announce func() error, try func() (bool, error)) error {
	if ok, err := try(); ok || err != nil {
		return err
	}
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", silent, ctx.Err())
	}
	defer func() { <-turn }()
	return wait(ctx, bell, announce, try)
}

// wait tries until it succeeds: for a while by polling, then whenever the bell
// rings. announce is called before each sleep, so that the peer rings.
func wait(ctx context.Context, bell *os.File, announce func() error, try func() (bool, error)) error {
	// On a single processor the peer runs only while we do not.
	if runtime.NumCPU() > 1 {
		if ok, err := poll(ctx, try); ok || err != nil {
			return err
		}
	}
	for {
		if err := announce(); err != nil {
			return err
		}
		if ok, err := try(); ok || err != nil {
			return err
		}
		if err := sleep(ctx, bell); err != nil {
			// The bell is closed at the end, when tags may be left.
			if ok, terr := try(); ok || terr != nil {
				return terr
			}
			return fmt.Errorf("wait for the peer: %w", err)
		}
	}
}

// poll tries for a while.
func poll(ctx context.Context, try func() (bool, error)) (bool, error) {
	for begin := time.Now(); time.Since(begin) < spin; {
		for range spinPolls {
			if ok, err := try(); ok || err != nil {
				return ok, err
			}
		}
		if err := ctx.Err(); err != nil {
			return false, fmt.Errorf("wait for the peer: %w", err)
		}
		runtime.Gosched()
	}
	return false, nil
}

// end moves the remaining tags out of the ring and releases it.
func (r *receiver) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	// Don't wait for a peer that continues to send.
	for range slots {
		t, ok, err := r.takeLocked()
		if !ok || err != nil {
			break
		}
		r.left = append(r.left, t)
	}
	r.ended = true
	_ = r.ring.close()
}

// end releases the peer's ring.
func (s *sender) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		_ = s.ring.close()
	}
}

func errEnded() error { return errors.New("shm: the session has ended") }
