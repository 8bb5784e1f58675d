package objects

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Holder is one user of keyed objects: what it has registered, set and
// published is its own, and goes when it ends. Its methods may be called from
// any goroutine.
type Holder struct {
	store *Store
	who   Caller
	// blobs counts those of the contents that are made of its memory.
	blobs atomic.Int64

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	regions map[*Region]struct{}
	// files are the files that keys were bound to.
	// +checklocks:mu
	files map[string]Ino
}

// NewHolder begins a holder for a user. Close ends it.
func (s *Store) NewHolder(who Caller) *Holder {
	h := &Holder{store: s, who: who, regions: map[*Region]struct{}{}, files: map[string]Ino{}}
	s.holders.add(h)
	return h
}

// Close withdraws what the holder has published and nobody is receiving, makes
// what it has set lost unless a replica takes over, and lets its regions go.
// Operations under way end with ErrLost. All of it has happened when it
// returns without an error; else it goes on in the background, and closing it
// again waits for it. A holder is closed before its store.
//
// Errors: the context's.
func (h *Holder) Close(ctx context.Context) error {
	regions := h.end(ctx)
	for _, r := range regions {
		if err := r.settled(ctx); err != nil {
			return err
		}
	}
	return nil
}

// end begins what Close waits for, and returns the regions that it has ended.
func (h *Holder) end(ctx context.Context) []*Region {
	h.mu.Lock()
	h.closed = true
	regions := slices.Collect(maps.Keys(h.regions))
	h.mu.Unlock()
	h.store.holders.remove(h)
	for _, r := range regions {
		r.end(ctx)
	}
	return regions
}

// holders are those of a store that have not ended.
type holders struct {
	mu sync.Mutex
	// +checklocks:mu
	open map[*Holder]struct{}
}

func (all *holders) add(h *Holder) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.open == nil {
		all.open = map[*Holder]struct{}{}
	}
	all.open[h] = struct{}{}
}

func (all *holders) remove(h *Holder) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.open, h)
}

// end ends all, whose work in the background goes on.
func (all *holders) end(ctx context.Context) {
	all.mu.Lock()
	left := slices.Collect(maps.Keys(all.open))
	all.mu.Unlock()
	for _, h := range left {
		h.end(ctx)
	}
}

// begin says whether the holder is still there.
//
// Errors: ErrClosed.
func (h *Holder) begin() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return fmt.Errorf("the user has ended: %w", ErrClosed)
	}
	return nil
}

// add makes a region the holder's.
func (h *Holder) add(r *Region) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return fmt.Errorf("the user has ended: %w", ErrClosed)
	}
	h.regions[r] = struct{}{}
	return nil
}

func (h *Holder) remove(r *Region) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.regions, r)
}

// rememberFile notes that the holder has given a file a key.
func (h *Holder) rememberFile(key string, ino Ino) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.files[key] = ino
}

// forgetFile says whether the holder has given a file a key, and forgets it.
func (h *Holder) forgetFile(key string, ino Ino) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	of, ok := h.files[key]
	delete(h.files, key)
	return ok && of == ino
}
