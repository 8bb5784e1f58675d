package comm

import (
	"context"
	"errors"
	"testing"
)

// Fences that are given up leave nothing behind, however long a request takes;
// and each waits for the requests that were started before it, and for nothing
// else.
func TestFencesThatGiveUp(t *testing.T) {
	s := &session{eras: []*era{newEra()}}
	begin := func() *era {
		e, err := s.enter()
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	count := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.eras)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	first := begin()
	for range 1000 {
		if err := s.fence(over); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if n := count(); n > 2 {
		t.Errorf("%d eras of one request", n)
	}
	waits := make(chan error, 1)
	go func() { waits <- s.fence(t.Context()) }()
	second := begin()
	if err := s.fence(over); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	third := begin()
	s.leave(third)
	if err := s.fence(over); !errors.Is(err, context.Canceled) {
		t.Error("a fence that waits for nobody:", err)
	}
	s.leave(first)
	s.leave(second)
	if err := errors.Join(<-waits, s.fence(over)); err != nil {
		t.Error(err)
	}
	if n := count(); n != 1 {
		t.Errorf("%d eras are left", n)
	}
}
