package objects

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/metadata"
)

// KeySpace is one of the two sets of keys.
type KeySpace int

// The spaces: of keys/ and of publish/.
const (
	SpaceKeys KeySpace = iota
	SpacePublish
)

// KeyAuthority decides between machines who may use a key. The store asks it
// before a key, or a name in publish/, becomes visible, and tells it when one
// has gone. Its methods may be called from any goroutine.
type KeyAuthority interface {
	// Claim asks for keys: for each nil, metadata.ErrExist when another machine
	// has it, or another error when that can't be found out. A key that is ours already is a success. With a lane, a
	// stripe or keyed.turn held it is not called.
	Claim(ctx context.Context, s KeySpace, keys []string) []error
	// Have tells of keys that are visible here without having been asked for:
	// they were there before the authority was, or their bytes are there again.
	// It does not wait, and is called with locks held.
	Have(s KeySpace, keys []string)
	// Release gives keys up. It does not wait, and is called with locks held.
	Release(s KeySpace, keys []string)
}

// tellKeys tells the authority of all keys.
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

// spaced is a key of one of the spaces.
type spaced struct {
	space KeySpace
	key   string
}

// claims is the authority that decides on keys, and what it is being asked.
type claims struct {
	meta  *metadata.Store
	index *keyIndex
	// life is that of what nobody asks for: a key goes whoever has ended it.
	life context.Context //nolint:containedctx // the store's own, as long as it

	mu sync.Mutex
	// +checklocks:mu
	authority KeyAuthority
	// asking counts the calls that are about to make a key visible: as long as
	// there is one it is not given up.
	// +checklocks:mu
	asking map[spaced]int
}

// claim asks for keys that are about to become visible. Each has an error, nil
// where it may be used. The caller calls done, once, when those are visible or
// will not be. It has no lock.
func (c *claims) claim(ctx context.Context, space KeySpace, keys []string) (errs []error, done func()) {
	c.mu.Lock()
	a := c.authority
	if a == nil || len(keys) == 0 {
		c.mu.Unlock()
		return make([]error, len(keys)), func() {}
	}
	if c.asking == nil {
		c.asking = map[spaced]int{}
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

// claimed ends what claim began for a key. Whoever is the last gives the key up
// unless it is visible.
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

// keyWent gives up a key that is not visible any more, unless somebody is about
// to use it again.
func (c *claims) keyWent(space KeySpace, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authority == nil || c.asking[spaced{space, key}] > 0 || c.index.shows(c.life, space, key) {
		return
	}
	c.authority.Release(space, []string{key})
}

// have tells the authority of a key that is visible without having been asked
// for, if it is.
func (c *claims) have(ctx context.Context, space KeySpace, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authority != nil && c.index.shows(context.WithoutCancel(ctx), space, key) {
		c.authority.Have(space, []string{key})
	}
}

// Conflict tells of a key that another machine has too. Where it yields, the
// object here loses the key, and stays what else it is: path is its file. What is
// published stays published.
//
// Errors: metadata.ErrNotExist for a key that names nothing here any more.
func (s *Store) Conflict(ctx context.Context, space KeySpace, key string, yields bool) (path string, err error) {
	ctx = context.WithoutCancel(ctx)
	var in metadata.Inode
	if space == SpacePublish {
		in, err = s.meta.Lookup(ctx, metadata.PublishIno, key)
	} else {
		in, err = s.index.holder(ctx, key)
	}
	if err == nil {
		path, err = s.meta.PathOf(ctx, in.Ino)
	}
	if err == nil && yields && space == SpaceKeys {
		err = s.keyed.takeKey(ctx, in)
	}
	if err != nil {
		return "", fmt.Errorf("key %q of two machines: %w", key, err)
	}
	s.events.emit(EventConflict, key, in)
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

// authorityTold tells the authority what an event means for it. It is called
// before listeners hear of the event, so that they find the key free.
func (h *events) authorityTold(kind EventKind, key string) {
	switch kind {
	case EventRemoved, EventExpired, EventLost:
		h.claims.keyWent(SpaceKeys, key)
	case EventConsumed, EventWithdrawn:
		h.claims.keyWent(SpacePublish, key)
	default: // it has come, or stays
	}
}
