package pins

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
)

// Table records the ranges registered with one driver, and which devices use them; D
// identifies a device. The zero value is empty. It is safe for concurrent use and must not
// be copied.
type Table[D comparable] struct {
	change sync.Mutex

	mu sync.RWMutex
	// ranges are sorted by address; no two overlap.
	// +checklocks:mu
	ranges []*pinned[D]
}

// pinned is a registered range.
type pinned[D comparable] struct {
	// bytes keeps the memory alive and in place, if it is Go's.
	bytes []byte
	// users counts the uses of each device; Table.mu guards it.
	users      map[D]int
	unregister func() error
}

// Pin starts a device's use of p, which must not be empty. Memory that is registered
// already, by any device, is used as it is; otherwise register registers it and returns the
// function that unregisters it, which may be called even after the device was closed. unpin
// is called once; it does nothing after Leave.
//
// Errors:
//   - devices.ErrUnsupported if a part of p is registered;
//   - those of register.
func (t *Table[D]) Pin(dev D, p []byte, register func() (unregister func() error, err error)) (unpin func() error, err error) {
	t.change.Lock()
	defer t.change.Unlock()
	r, at := t.find(p)
	switch {
	case r == nil:
		unregister, err := register()
		if err != nil {
			return nil, err
		}
		r = &pinned[D]{bytes: p, users: map[D]int{}, unregister: unregister}
		t.mu.Lock()
		t.ranges = slices.Insert(t.ranges, at, r)
		r.users[dev]++
		t.mu.Unlock()
	case begin(p) < begin(r.bytes) || end(p) > end(r.bytes):
		return nil, fmt.Errorf("pin %d bytes of host memory, part of which is pinned already: %w", len(p), devices.ErrUnsupported)
	default:
		t.mu.Lock()
		r.users[dev]++
		t.mu.Unlock()
	}
	return func() error {
		t.change.Lock()
		defer t.change.Unlock()
		return t.drop(dev, r, 1)
	}, nil
}

// find returns the first range that overlaps with p, nil if none does, and its index or
// insertion index in the list.
func (t *Table[D]) find(p []byte) (*pinned[D], int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	// The first range that ends after the start of p.
	i, _ := slices.BinarySearchFunc(t.ranges, begin(p), func(r *pinned[D], at uintptr) int {
		if end(r.bytes) <= at {
			return -1
		}
		return 1
	})
	if i < len(t.ranges) && begin(t.ranges[i].bytes) < end(p) {
		return t.ranges[i], i
	}
	return nil, i
}

// drop ends the given number of uses of a range, and unregisters it after the last. The
// caller holds change.
func (t *Table[D]) drop(dev D, r *pinned[D], uses int) error {
	t.mu.Lock()
	left := r.users[dev] - uses
	if left < 0 {
		t.mu.Unlock()
		return nil // Leave has ended them already
	}
	r.users[dev] = left
	if left == 0 {
		delete(r.users, dev)
	}
	last := len(r.users) == 0
	if last {
		t.ranges = slices.DeleteFunc(t.ranges, func(x *pinned[D]) bool { return x == r })
	}
	t.mu.Unlock()
	if last {
		return r.unregister()
	}
	return nil
}

// Leave ends all uses of a device.
func (t *Table[D]) Leave(dev D) error {
	t.change.Lock()
	defer t.change.Unlock()
	t.mu.RLock()
	uses := map[*pinned[D]]int{}
	for _, r := range t.ranges {
		if n := r.users[dev]; n > 0 {
			uses[r] = n
		}
	}
	t.mu.RUnlock()
	var errs []error
	for r, n := range uses {
		errs = append(errs, t.drop(dev, r, n))
	}
	return errors.Join(errs...)
}

// Uniform returns the length of the prefix of p that is entirely in one range, or entirely
// in none: at least 1 if p is not empty.
func (t *Table[D]) Uniform(p []byte) int {
	r, _ := t.find(p)
	switch {
	case r == nil:
		return len(p)
	case begin(p) < begin(r.bytes):
		return int(begin(r.bytes) - begin(p))
	}
	return min(len(p), int(end(r.bytes)-begin(p)))
}

// Covers reports whether the device may treat all of p, which must not be empty, as pinned.
func (t *Table[D]) Covers(dev D, p []byte) bool {
	r, _ := t.find(p)
	if r == nil || begin(p) < begin(r.bytes) || end(p) > end(r.bytes) {
		return false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return r.users[dev] > 0
}
