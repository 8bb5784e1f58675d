package admin_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// valueSlots is the number of values that a session moves at once.
const valueSlots = 32

// valueMemory returns how many mappings and descriptors of values this process has.
func valueMemory(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	fatal(t, err)
	n := strings.Count(string(maps), "memfd:values")
	links, err := filepath.Glob("/proc/self/fd/*")
	fatal(t, err)
	for _, link := range links {
		if to, _ := os.Readlink(link); strings.Contains(to, "memfd:values") {
			n++
		}
	}
	return n
}

// sized returns a value whose bytes follow from its size.
func sized(n int) []byte { return kit.Bytes(uint64(n), 0, n) }

// checkSized compares a value with the one of its size.
func checkSized(t *testing.T, value []byte) {
	t.Helper()
	if at := kit.DiffAt(value, uint64(len(value)), 0); at >= 0 {
		t.Errorf("a value of %d bytes differs at %d", len(value), at)
	}
}

// TestValues sets and gets values of all sizes in a store, by one session and another, and then by many goroutines.
func TestValues(t *testing.T) {
	r := newStoreRig(t)
	one, other := r.open(t), r.open(t)
	ctx := t.Context()
	for _, n := range []int{1, 4096, 65536, 65537, 1 << 20} {
		fatal(t, one.Set(ctx, "k", sized(n), hetero.SetOptions{}))
		for _, s := range []*client.Session{one, other} {
			got, err := s.Get(ctx, "k")
			if err != nil || len(got) != n {
				t.Fatalf("%d bytes became %d, %v", n, len(got), err)
			}
			checkSized(t, got)
		}
	}
	for what, c := range map[string]struct{ err, want error }{
		"a value without bytes": {one.Set(ctx, "k", nil, hetero.SetOptions{}), hetero.ErrInvalid},
		"no key":                {one.Set(ctx, "", sized(1), hetero.SetOptions{}), hetero.ErrInvalid},
		"a large one, no key":   {one.Set(ctx, "a/b", sized(1<<17), hetero.SetOptions{}), hetero.ErrInvalid},
		"a bad time to live":    {one.Set(ctx, "k", sized(1), hetero.SetOptions{TTL: -1}), hetero.ErrInvalid},
		"one that exists":       {one.Set(ctx, "k", sized(1), hetero.SetOptions{Existing: hetero.ExistingFail}), hetero.ErrExist},
		"one left out":          {one.Set(ctx, "k", sized(1), hetero.SetOptions{Existing: hetero.ExistingSkip}), nil},
		"more than there is":    {one.Set(ctx, "k", sized(32<<20), hetero.SetOptions{}), hetero.ErrNoMemory},
	} {
		if !errors.Is(c.err, c.want) || c.want == nil && c.err != nil {
			t.Errorf("%s: %v, want %v", what, c.err, c.want)
		}
	}
	if got, err := other.Get(ctx, "k"); err != nil || len(got) != 1<<20 {
		t.Errorf("after calls that failed: %d bytes, %v", len(got), err)
	}
	if _, err := one.Get(ctx, "none"); !errors.Is(err, hetero.ErrNotFound) || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("no such key: %v", err)
	}
	t.Run("many", func(t *testing.T) { manyValues(t, one) })
	t.Run("replaced", func(t *testing.T) { replacedValues(t, one, other) })
	fatal(t, errors.Join(one.Close(), other.Close()))
	kit.Eventually(t, sessionPatience, func() bool { return valueMemory(t) == 0 })
	if err := one.Set(ctx, "k", sized(1), hetero.SetOptions{}); !errors.Is(err, hetero.ErrClosed) {
		t.Errorf("behind the end: %v", err)
	}
}

// manyValues uses a session in 64 goroutines, twice as many as it has slots.
func manyValues(t *testing.T, s *client.Session) {
	t.Helper()
	ctx := t.Context()
	var all sync.WaitGroup
	for i := range 2 * valueSlots {
		all.Go(func() {
			key := "many-" + string(rune('A'+i%26)) + string(rune('a'+i/26))
			for round := range 8 {
				n := 1 + (i*7919+round*15485)%70_000
				err := s.Set(ctx, key, sized(n), hetero.SetOptions{})
				got, gerr := s.Get(ctx, key)
				if err = errors.Join(err, gerr); err != nil || len(got) != n {
					t.Errorf("%d bytes became %d: %v", n, len(got), err)
					return
				}
				checkSized(t, got)
			}
			_, err := s.Delete(ctx, []string{key})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// replacedValues gets a key while values of other sizes replace it.
func replacedValues(t *testing.T, writer, reader *client.Session) {
	t.Helper()
	ctx := t.Context()
	fatal(t, writer.Set(ctx, "k", sized(1), hetero.SetOptions{}))
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			n := 1 + i*30_011%90_000
			if err := writer.Set(ctx, "k", sized(n), hetero.SetOptions{}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 300 {
		got, err := reader.Get(ctx, "k")
		fatal(t, err)
		checkSized(t, got)
	}
	close(stop)
	all.Wait()
}

// TestValuesWaitForASlot fills all slots with calls that do not end.
func TestValuesWaitForASlot(t *testing.T) {
	r := newKeyedRig(t, 0)
	s := r.open(t)
	fill := func(ctx context.Context) (ends chan error) {
		ends = make(chan error, valueSlots)
		for range valueSlots {
			go func() {
				_, err := s.Get(ctx, keyStuck)
				ends <- err
			}()
		}
		kit.Eventually(t, sessionPatience, func() bool { return r.last().waiting() == valueSlots })
		return ends
	}
	ctx, cancel := context.WithCancel(t.Context())
	stuck := fill(ctx)
	gone, left := context.WithCancel(t.Context())
	left()
	if _, err := s.Get(gone, "a"); !errors.Is(err, hetero.ErrInterrupted) {
		t.Errorf("a wait that was cancelled: %v", err)
	}
	late, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	if err := s.Set(late, "a", sized(1<<20), hetero.SetOptions{}); !errors.Is(err, hetero.ErrTimeout) {
		t.Errorf("a wait that was too long: %v", err)
	}
	waiter := make(chan error, 1)
	go func() { waiter <- s.Set(t.Context(), "a", sized(9), hetero.SetOptions{}) }()
	cancel()
	for range valueSlots {
		if err := <-stuck; !errors.Is(err, hetero.ErrInterrupted) {
			t.Errorf("a call that was cancelled: %v", err)
		}
	}
	fatal(t, <-waiter)
	stuck = fill(t.Context())
	go func() { waiter <- s.Set(t.Context(), "a", sized(9), hetero.SetOptions{}) }()
	fatal(t, s.Close())
	for range valueSlots {
		if err := <-stuck; !errors.Is(err, hetero.ErrClosed) {
			t.Errorf("a call when the session was closed: %v", err)
		}
	}
	if err := <-waiter; !errors.Is(err, hetero.ErrClosed) {
		t.Errorf("a wait when the session was closed: %v", err)
	}
	kit.Eventually(t, sessionPatience, func() bool { return valueMemory(t) == 0 })
}

// TestValuesOfOthers uses keys of another user.
func TestValuesOfOthers(t *testing.T) {
	r := newStoreRig(t)
	roots, ctx := r.open(t), t.Context()
	fatal(t, roots.Set(ctx, "k", sized(9), hetero.SetOptions{}))
	r.uid.Store(owner + 1)
	theirs := r.open(t)
	for _, n := range []int{7, 1 << 17} {
		_, err := theirs.Get(ctx, "k")
		for _, err = range []error{err, theirs.Set(ctx, "k", sized(n), hetero.SetOptions{})} {
			if !errors.Is(err, hetero.ErrNotAuthorized) {
				t.Errorf("a key of root: %v", err)
			}
		}
	}
	if got, err := roots.Get(ctx, "k"); err != nil || len(got) != 9 {
		t.Errorf("root's key has %d bytes, %v", len(got), err)
	}
}
