package objects

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/metadata"
)

// KeySpace selects one of the two sets of keys.
type KeySpace int

// The key spaces: keys/ and publish/.
const (
	SpaceKeys KeySpace = iota
	SpacePublish
)

// KeyAuthority decides which node may use a key. The store asks it before a key, or a
// name in publish/, becomes visible, and notifies it when one no longer is. Its methods
// may be called from any goroutine.
type KeyAuthority interface {
	// Claim requests keys. The result has an error for each: nil; metadata.ErrExist if
	// another node has the key; another error if that cannot be determined. A key that this
	// node has already is a success. Claim is never called with a lane, a stripe or
	// keyed.turn held.
	Claim(ctx context.Context, s KeySpace, keys []string) []error
	// Have reports keys that are visible here and were never claimed: they existed before
	// the authority was set, or their bytes have become available again. It does not wait,
	// and is called with locks held.
	Have(s KeySpace, keys []string)
	// Release releases keys. It does not wait, and is called with locks held.
	Release(s KeySpace, keys []string)
}

func (c *claims) tellKeys(ctx context.Context) error {
	for after := ""; ; {
		entries, err := c.meta.Keys(ctx, after, publishChunk)
		if err != nil {
			return err
		}
		for _, e := range entries {
			after = e.Key
			c.have(ctx, SpaceKeys, after)
		}
		if len(entries) < publishChunk {
			break
		}
	}
	for after := metadata.Cookie(0); ; {
		entries, err := c.meta.ReadDir(ctx, metadata.PublishIno, after, publishChunk)
		if err != nil {
			return err
		}
		for _, e := range entries {
			after = e.Cookie
			c.have(ctx, SpacePublish, e.Name)
		}
		if len(entries) < publishChunk {
			return nil
		}
	}
}

type spaced struct {
	space KeySpace
	key   string
}

// claims holds the authority on keys, and counts the requests to it under way.
type claims struct {
	meta  *metadata.Store
	index *keyIndex
	// life is the context for work that no request started: a key that has ended is
	// released in any case.
	life context.Context //nolint:containedctx // it is the lifetime of the store

	mu sync.Mutex
	// +checklocks:mu
	authority KeyAuthority
	// asking counts, for each key, the calls that are about to make it visible; while there
	// is one, the key is not released.
	// +checklocks:mu
	asking map[spaced]int
}

// claim requests keys that are about to become visible. The result has an error for
// each key, nil if it may be used. The caller holds no lock, and calls done once, when
// the keys are visible or will not be.
func (c *claims) claim(ctx context.Context, space KeySpace, keys []string) (errs []error, done func()) {
	c.mu.Lock()
	a := c.authority
	if a == nil || len(keys) == 0 {
		c.mu.Unlock()
		return make([]error, len(keys)), func() {}
	}
	for _, key := range keys {
		c.asking[spaced{space, key}]++
	}
	c.mu.Unlock()
	return a.Claim(ctx, space, keys), func() {
		for _, key := range keys {
			c.claimed(context.WithoutCancel(ctx), space, key)
		}
	}
}

// claimed ends one request of claim for a key. The last one releases the key unless it
// is visible.
func (c *claims) claimed(ctx context.Context, space KeySpace, key string) {
	at := spaced{space, key}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking[at]--; c.asking[at] > 0 {
		return
	}
	delete(c.asking, at)
	if c.authority != nil && !c.index.shows(ctx, space, key) {
		c.authority.Release(space, []string{key})
	}
}

// keyWent releases a key that is no longer visible, unless a call is about to use it
// again.
func (c *claims) keyWent(space KeySpace, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authority == nil || c.asking[spaced{space, key}] > 0 || c.index.shows(c.life, space, key) {
		return
	}
	c.authority.Release(space, []string{key})
}

// have reports a key that was never claimed to the authority, if the key is visible.
func (c *claims) have(ctx context.Context, space KeySpace, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authority != nil && c.index.shows(context.WithoutCancel(ctx), space, key) {
		c.authority.Have(space, []string{key})
	}
}

// Conflict handles a key that another node has too. If yields is set, the object here
// loses the key, and is otherwise unchanged; publications stay published. path is the
// path of the object.
//
// Errors: metadata.ErrNotExist for a key that no longer names anything here.
func (s *Store) Conflict(ctx context.Context, space KeySpace, key string, yields bool) (path string, err error) {
	ctx = context.WithoutCancel(ctx)
	in, err := s.index.carrier(ctx, space, key)
	if err == nil {
		path, err = s.meta.PathOf(ctx, in.Ino)
	}
	if err == nil && yields && space == SpaceKeys {
		err = s.keyed.takeKey(ctx, in)
	}
	if err != nil {
		return "", fmt.Errorf("resolve the conflict of key %q between two nodes: %w", key, err)
	}
	s.events.emit(EventConflict, key, &in.Inode)
	return path, nil
}

// claimOne is claim for one key.
func (c *claims) claimOne(ctx context.Context, space KeySpace, key string) (done func(), err error) {
	errs, done := c.claim(ctx, space, []string{key})
	if errs[0] != nil {
		done()
		return func() {}, errs[0]
	}
	return done, nil
}

// notifyAuthority notifies the authority of an event that ends a key. It is called before
// listeners receive the event, so that they find the key free.
func (h *events) notifyAuthority(kind EventKind, key string) {
	switch kind {
	case EventRemoved, EventExpired, EventLost:
		h.claims.keyWent(SpaceKeys, key)
	case EventConsumed, EventWithdrawn:
		h.claims.keyWent(SpacePublish, key)
	default: // the key is new, or stays
	}
}

// setAuthority implements Store.SetAuthority.
func (c *claims) setAuthority(ctx context.Context, a KeyAuthority) error {
	c.mu.Lock()
	c.authority = a
	c.mu.Unlock()
	if a == nil {
		return nil
	}
	if err := c.tellKeys(ctx); err != nil {
		return fmt.Errorf("announce the existing keys: %w", err)
	}
	return nil
}
