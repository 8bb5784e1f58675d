package keyindex

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/members"
)

// maxRemembered bounds the remembered places; when it is exceeded, all are forgotten.
const maxRemembered = 1 << 16

// memory caches the places at which keys were found.
type memory struct {
	keep time.Duration

	mu sync.Mutex
	// +checklocks:mu
	places map[string]remembered
}

type remembered struct {
	node  members.Name
	until time.Time
}

func newMemory(keep time.Duration) memory {
	return memory{keep: keep, places: map[string]remembered{}}
}

func (m *memory) get(name string) (members.Name, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.places[name]
	if ok && time.Now().After(at.until) {
		delete(m.places, name)
		ok = false
	}
	return at.node, ok
}

func (m *memory) put(name string, node members.Name) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.places) >= maxRemembered {
		clear(m.places)
	}
	m.places[name] = remembered{node: node, until: time.Now().Add(m.keep)}
}

func (m *memory) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.places, name)
}

// Find returns the other node that has a key; see Index.
func (r *Registry) Find(ctx context.Context, s Space, key string) (Place, error) {
	name := nameOf(s, key)
	if node, ok := r.memory.get(name); ok {
		return Place{Key: key, Node: node}, nil
	}
	if r.isAway() {
		return Place{}, fmt.Errorf("key %q: %w", key, coord.ErrUnavailable)
	}
	e, err := r.o.Service.Get(ctx, name)
	r.observed(err)
	var has Place
	if err == nil {
		has, err = r.placeOf(s, e)
	} else if errors.Is(err, coord.ErrNotFound) {
		r.strange.Gone(name)
	}
	switch {
	case errors.Is(err, coord.ErrNotFound), err == nil && has.Node == r.o.Self:
		return Place{}, fmt.Errorf("key %q: %w", key, metadata.ErrNotExist)
	case err != nil:
		return Place{}, fmt.Errorf("key %q: %w", key, err)
	}
	r.memory.put(name, has.Node)
	return has, nil
}

// Forget discards the remembered place of a key; see Index.
func (r *Registry) Forget(s Space, key string) { r.memory.forget(nameOf(s, key)) }

// List lists keys; see Index.
func (r *Registry) List(ctx context.Context, s Space, after string, limit int) ([]Place, error) {
	if r.isAway() {
		return nil, fmt.Errorf("list keys: %w", coord.ErrUnavailable)
	}
	var places []Place
	for from := nameOf(s, after); len(places) < limit; {
		page := limit - len(places)
		entries, _, err := r.o.Service.List(ctx, nameOf(s, ""), from, page)
		r.observed(err)
		if err != nil {
			return nil, fmt.Errorf("list keys: %w", err)
		}
		for _, e := range entries {
			from = e.Name
			if place, err := r.placeOf(s, e); err == nil {
				places = append(places, place)
			}
		}
		if len(entries) < page {
			break
		}
	}
	return places, nil
}

// placeOf returns the place that an entry describes. Any client with write access to the
// service may write anything: an entry with an invalid key or node is reported and skipped.
func (r *Registry) placeOf(s Space, e coord.Entry) (Place, error) {
	key, ok := keyIn(s, e.Name)
	err := metadata.ValidKey(key)
	if !ok {
		err = errForeign
	}
	var has keyOwner
	if err == nil {
		has, err = decodeKeyOwner(e.Value)
	}
	if err != nil {
		r.strange.Found(r.o.Logger, "cannot decode an entry of the index", e, err)
	} else {
		r.strange.Gone(e.Name)
	}
	return Place{Key: key, Node: has.node}, err
}

// observed records whether the service answers.
func (r *Registry) observed(err error) {
	gone := errors.Is(err, coord.ErrUnavailable)
	r.mu.Lock()
	was := r.away
	if gone || err == nil || errors.Is(err, coord.ErrNotFound) {
		r.away = gone
	}
	r.mu.Unlock()
	if gone && !was {
		r.awake()
	}
}

// isAway reports whether the service failed to answer the last request. The worker keeps
// polling it, so that other callers need not wait for it.
func (r *Registry) isAway() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.away
}
