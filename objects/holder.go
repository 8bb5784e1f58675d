package objects

import (
	"context"
	"fmt"
	"sync"
)

// Holder is one user of keyed objects: what it has registered, set and
// published is its own, and goes when it ends. Its methods may be called from
// any goroutine.
type Holder struct {
	store *Store
	who   Caller

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
	return &Holder{store: s, who: who, regions: map[*Region]struct{}{}, files: map[string]Ino{}}
}

// Close withdraws what the holder has published and nobody is receiving, makes
// what it has set lost unless a replica takes over, and lets its regions go.
// Operations under way end with ErrLost. All of it has happened when it
// returns without an error; else it goes on in the background. Closing it again
// does nothing. Every holder is closed before its store.
//
// Errors: the context's.
func (h *Holder) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	regions := h.regions
	h.regions = nil
	h.mu.Unlock()
	for r := range regions {
		r.end()
	}
	for r := range regions {
		if err := r.settled(ctx); err != nil {
			return err
		}
	}
	return nil
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

// notBuilt stands where code is to come.
func notBuilt(context.Context) error { return ErrUnsupported }
