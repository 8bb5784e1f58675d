package dl

import (
	"errors"
	"sync"
	"testing"
)

// TestLazyLoadsUntilItIsThere makes the first loads fail, as before a library is installed,
// and checks that no load follows the one that succeeded.
func TestLazyLoadsUntilItIsThere(t *testing.T) {
	var lazy Lazy[*Handle]
	loads := 0
	load := func() (*Handle, error) {
		loads++
		if loads < 3 {
			return &Handle{name: "half open"}, ErrNotInstalled
		}
		return &Handle{name: "open"}, nil
	}
	for range 2 {
		if h, err := lazy.Get(load); h != nil || !errors.Is(err, ErrNotInstalled) {
			t.Fatalf("got %v and %v of a load that failed", h, err)
		}
	}
	first, err := lazy.Get(load)
	if err != nil || first.Name() != "open" {
		t.Fatalf("got %v and %v of a load that worked", first, err)
	}
	again, err := lazy.Get(load)
	if err != nil || again != first || loads != 3 {
		t.Errorf("got %v and %v after %d loads, want %v after 3", again, err, loads, first)
	}
}

// TestLazyLoadsOnce calls Get from many goroutines at the same time.
func TestLazyLoadsOnce(t *testing.T) {
	var lazy Lazy[int]
	loads := 0 // by itself: the race detector sees two loads at a time
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			got, err := lazy.Get(func() (int, error) {
				loads++
				return loads, nil
			})
			if got != 1 || err != nil {
				t.Errorf("got %d and %v, want 1", got, err)
			}
		})
	}
	wg.Wait()
	if loads != 1 {
		t.Errorf("%d loads", loads)
	}
}
