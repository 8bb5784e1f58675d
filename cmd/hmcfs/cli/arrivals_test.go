package cli

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// fakeDirectory has keys that appear when a test says so. Any goroutine may call it.
type fakeDirectory struct {
	hetero.Directory

	refusal error

	mu sync.Mutex
	// asked counts the calls of Each.
	// +checklocks:mu
	asked int
	// +checklocks:mu
	keys map[string]chan struct{} // closed when the key exists
}

func newDirectory(there ...string) *fakeDirectory {
	d := &fakeDirectory{keys: map[string]chan struct{}{}}
	for _, key := range there {
		d.come(key)
	}
	return d
}

func (d *fakeDirectory) waitFor(key string) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.keys[key] == nil {
		d.keys[key] = make(chan struct{})
	}
	return d.keys[key]
}

func (d *fakeDirectory) come(key string) { close(d.waitFor(key)) }

func (d *fakeDirectory) leave(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.keys, key)
}

func (d *fakeDirectory) calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

func (d *fakeDirectory) Each(ctx context.Context, keys []string, _ bool, timeout time.Duration, came func(int, error)) error {
	d.mu.Lock()
	d.asked++
	d.mu.Unlock()
	if d.refusal != nil {
		return d.refusal
	}
	late, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var one sync.Mutex
	var work sync.WaitGroup
	for i, key := range keys {
		work.Go(func() {
			var err error
			select {
			case <-d.waitFor(key):
			case <-late.Done():
				err = hetero.ErrTimeout
			}
			one.Lock()
			defer one.Unlock()
			came(i, err)
		})
	}
	work.Wait()
	return nil
}

// takes records the keys that arrivals passes on.
type takes struct {
	taken  chan string
	failed map[int]error
}

func arrivalsOf(d *fakeDirectory, keys []string) (*arrivals, *takes) {
	got := &takes{taken: make(chan string, 100), failed: map[int]error{}}
	return &arrivals{
		c: d,
		take: func(_ context.Context, places []int) []int {
			for _, place := range places {
				got.taken <- keys[place]
			}
			return nil
		},
		fail: func(place int, err error) { got.failed[place] = err },
	}, got
}

// TestArrivalsHoldUpNobody never has the first key: the others are taken as they appear,
// once each.
func TestArrivalsHoldUpNobody(t *testing.T) {
	kit.Check(t)
	d := newDirectory("c")
	keys := []string{"a", "b", "c", "d"}
	v, got := arrivalsOf(d, keys)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- v.each(ctx, keys, time.Hour) }()
	for i, want := range []string{"c", "d", "b"} {
		if i > 0 {
			d.come(want)
		}
		if key := <-got.taken; key != want {
			t.Errorf("taken %s, want %s", key, want)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(got.taken) != 0 || len(got.failed) != 0 || d.calls() != 1 {
		t.Errorf("%d more taken, failed: %v, %d calls", len(got.taken), got.failed, d.calls())
	}
}

func TestArrivalsEnd(t *testing.T) {
	kit.Check(t)
	keys := []string{"a", "b"}
	synctest.Test(t, func(t *testing.T) {
		v, got := arrivalsOf(newDirectory("b"), keys)
		if err := v.each(t.Context(), keys, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(got.failed[0], hetero.ErrTimeout) || len(got.failed) != 1 || len(got.taken) != 1 {
			t.Errorf("at the timeout: %d taken, %v", len(got.taken), got.failed)
		}
	})
	d := newDirectory("b")
	d.refusal = hetero.ErrBusy
	v, got := arrivalsOf(d, keys)
	if err := v.each(t.Context(), keys, time.Hour); !errors.Is(err, hetero.ErrBusy) || len(got.failed)+len(got.taken) != 0 {
		t.Errorf("a call that is refused: %v, failed %v", err, got.failed)
	}
}

// TestArrivalsThatStayBehind has a key that exists and cannot be taken: it is requested
// again until the timeout, and no longer.
func TestArrivalsThatStayBehind(t *testing.T) {
	kit.Check(t)
	synctest.Test(t, func(t *testing.T) {
		d := newDirectory("a", "b")
		keys := []string{"a", "b"}
		v, got := arrivalsOf(d, keys)
		tries := map[int]int{}
		v.take = func(_ context.Context, places []int) (again []int) {
			for _, place := range places {
				tries[place]++
			}
			return slices.DeleteFunc(places, func(place int) bool { return place == 1 })
		}
		begun := time.Now()
		if err := v.each(t.Context(), keys, time.Second); err != nil {
			t.Error(err)
		}
		if want := map[int]int{0: int(time.Second / contestPause), 1: 1}; !maps.Equal(tries, want) || !errors.Is(got.failed[0], hetero.ErrTimeout) {
			t.Errorf("%v attempts, want %v, failed: %v", tries, want, got.failed)
		}
		if took := time.Since(begun); took != time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestArrivalsLoseARace has another client take an existing key first: it is waited for
// again, along with one that never appears.
func TestArrivalsLoseARace(t *testing.T) {
	kit.Check(t)
	synctest.Test(t, func(t *testing.T) {
		d := newDirectory("a")
		keys := []string{"a", "b"}
		v, got := arrivalsOf(d, keys)
		tries := 0
		v.take = func(_ context.Context, places []int) []int {
			if tries++; tries > 1 {
				return nil
			}
			d.leave("a")
			go func() {
				<-time.After(10 * time.Second)
				d.come("a")
			}()
			return places
		}
		if err := v.each(t.Context(), keys, time.Minute); err != nil {
			t.Fatal(err)
		}
		if tries != 2 || !errors.Is(got.failed[1], hetero.ErrTimeout) || len(got.failed) != 1 {
			t.Errorf("%d attempts, failed: %v", tries, got.failed)
		}
	})
}
