package objects

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Holder represents one user of keyed objects, such as a session: the memory that it
// has registered, and the keys and publications that it has made, belong to it and end
// with it. Its methods may be called from any goroutine.
type Holder struct {
	store *Store
	who   Caller
	// id identifies the session across daemons; zero for a holder that ends with this one.
	id sessionID
	// blobs counts the blobs of all contents that are made of its memory.
	blobs atomic.Int64
	// closed is set with mu, by which nothing is added afterwards.
	closed atomic.Bool

	mu sync.Mutex
	// continued is set if an earlier daemon has had the holder's session.
	// +checklocks:mu
	continued bool
	// +checklocks:mu
	regions map[*Region]struct{}
	// files are the files to which the holder has bound keys.
	// +checklocks:mu
	files map[string]Ino
}

// NewHolder makes a holder for a user. Close ends it.
func (s *Store) NewHolder(who Caller) *Holder {
	h := &Holder{store: s, who: who, regions: map[*Region]struct{}{}, files: map[string]Ino{}}
	s.holders.Store(h, nil)
	return h
}

// NewSession is NewHolder for a session: if the store outlives its process, so do the session's keys and
// publications, which a holder of a session with the same name gets back by Continue. The name is a secret.
func (s *Store) NewSession(who Caller, name string) *Holder {
	h := s.NewHolder(who)
	if s.lasting && name != "" {
		sum := sha256.Sum256([]byte(name))
		copy(h.id[:], sum[:])
	}
	return h
}

// Close withdraws the holder's publications that are not being received, makes the keys
// that it has set lost unless a replica takes over, and releases its regions.
// Operations under way end with ErrLost. When Close returns without an error, all of
// this has happened; otherwise it continues in the background, and calling Close again
// waits for it. A holder must be closed before its store.
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

// end starts everything that Close waits for, and returns the regions that it has
// ended.
func (h *Holder) end(ctx context.Context) []*Region {
	h.mu.Lock()
	h.closed.Store(true)
	regions := slices.Collect(maps.Keys(h.regions))
	h.mu.Unlock()
	h.store.holders.Delete(h)
	for _, r := range regions {
		r.end(ctx)
	}
	if h.id != (sessionID{}) {
		loseAll(context.WithoutCancel(ctx), h.store.bindings.absences.take(h.id), h.store.endOf)
	}
	return regions
}

// begin fails if the holder is closed.
//
// Errors: ErrClosed.
func (h *Holder) begin() error {
	if h.closed.Load() {
		return fmt.Errorf("the session has ended: %w", ErrClosed)
	}
	return nil
}

func (h *Holder) add(r *Region) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed.Load() {
		return fmt.Errorf("the session has ended: %w", ErrClosed)
	}
	h.regions[r] = struct{}{}
	return nil
}

func (h *Holder) remove(r *Region) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.regions, r)
}

// rememberFile records that the holder has given a file a key.
func (h *Holder) rememberFile(key string, ino Ino) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.files[key] = ino
}

// hasFile reports whether the holder continues a session and has registered a file.
func (h *Holder) hasFile(ino Ino) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.continued {
		return false
	}
	for r := range h.regions {
		if r.body == nil && r.ino == ino {
			return true
		}
	}
	return false
}

// forgetFile reports whether the holder has given a file a key, and deletes that
// record.
func (h *Holder) forgetFile(key string, ino Ino) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	of, ok := h.files[key]
	delete(h.files, key)
	return ok && of == ino
}
