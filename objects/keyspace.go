package objects

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/hmcfs/hmcfs/metadata"
)

// Keys gives access to the keys of objects and of publications: of this node's store
// (LocalKeys), or of all nodes. Each method acts for a holder's user, whose permissions
// are checked on the node that has the object.
//
// Methods may be called from any goroutine. A key that exists on no node is
// metadata.ErrNotExist. If a node that may have a key can't be reached, the error says
// so; see package cluster.
type Keys interface {
	// Info looks up a key, or a publication. One whose bytes are lost has StateLost.
	Info(ctx context.Context, h *Holder, key string, published bool) (KeyInfo, error)
	// Scatter is Holder.Scatter.
	Scatter(ctx context.Context, h *Holder, sc Scatter) error
	// Gather is Holder.Gather.
	Gather(ctx context.Context, h *Holder, set []Keyed, o GatherOptions) []Gathered
	Publications
	// Drop removes keys, and returns an error for each.
	Drop(ctx context.Context, h *Holder, keys []string) []error
	// Expire sets when a key expires; zero is never.
	Expire(ctx context.Context, h *Holder, key string, at metadata.Timespec) error
	// Watch calls came, from any goroutine, when one of the keys may have become visible on
	// another node; for this node there are the store's events. stop ends that.
	Watch(ctx context.Context, published bool, keys []string, came func(key string)) (stop func())
	// List lists keys of all nodes, in order; see KeyRange. Keys of nodes that can't be
	// reached are left out, and the error says so; if this node's can't be read, the list
	// is nil.
	List(ctx context.Context, r KeyRange) ([]KeyEntry, error)
	// CanWait reports whether other nodes may have to be asked, so that it is worthwhile to
	// ask for several keys at once.
	CanWait() bool
}

// Publications are those of Keys.
type Publications interface {
	// Receive is Holder.Receive, and Claim is Holder.Claim.
	Receive(ctx context.Context, h *Holder, k Keyed) error
	Claim(ctx context.Context, h *Holder, key string, wait bool) (Reservation, error)
	// Received is Holder.Received, also for what was received of other nodes.
	Received(ctx context.Context, h *Holder, key string) (bool, error)
}

// KeyRange selects the keys to list.
type KeyRange struct {
	// Published selects publications instead of keys.
	Published bool
	// From is the key after which the list begins; Inclusive includes it.
	From      string
	Inclusive bool
	// Limit is the maximum number of keys; a shorter list is the end.
	Limit int
}

// KeyEntry is an entry of a list of keys.
type KeyEntry struct {
	Key string
	// Ino is the object's inode number, if it is on this node, and Tensor says that the key
	// names a tensor of it.
	Ino    Ino
	Tensor bool
	// Node is the node that has it; empty for this one.
	Node string
}

// LocalKeys implements Keys for one store.
type LocalKeys struct{ Store *Store }

var _ Keys = LocalKeys{}

// CanWait implements Keys.
func (LocalKeys) CanWait() bool { return false }

// Info implements Keys.
func (LocalKeys) Info(ctx context.Context, h *Holder, key string, published bool) (KeyInfo, error) {
	if published {
		return h.PublicationInfo(ctx, key)
	}
	return h.KeyInfo(ctx, key)
}

// Scatter implements Keys.
func (LocalKeys) Scatter(ctx context.Context, h *Holder, sc Scatter) error {
	return h.Scatter(ctx, sc)
}

// Gather implements Keys.
func (LocalKeys) Gather(ctx context.Context, h *Holder, set []Keyed, o GatherOptions) []Gathered {
	return h.Gather(ctx, set, o)
}

// Receive implements Keys.
func (LocalKeys) Receive(ctx context.Context, h *Holder, k Keyed) error { return h.Receive(ctx, k) }

// Received implements Keys.
func (LocalKeys) Received(ctx context.Context, h *Holder, key string) (bool, error) {
	return h.Received(ctx, key), nil
}

// Claim implements Keys.
func (LocalKeys) Claim(ctx context.Context, h *Holder, key string, wait bool) (Reservation, error) {
	c, err := h.Claim(ctx, key, wait)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Drop implements Keys.
func (LocalKeys) Drop(ctx context.Context, h *Holder, keys []string) []error {
	return h.Drop(ctx, keys)
}

// Expire implements Keys.
func (LocalKeys) Expire(ctx context.Context, h *Holder, key string, at metadata.Timespec) error {
	return h.Expire(ctx, key, at)
}

// Watch implements Keys. It never calls came: there are no other nodes.
func (LocalKeys) Watch(context.Context, bool, []string, func(string)) (stop func()) {
	return func() {}
}

// List implements Keys.
func (l LocalKeys) List(ctx context.Context, r KeyRange) ([]KeyEntry, error) {
	if r.Published {
		return l.publications(ctx, r)
	}
	var out []KeyEntry
	if r.Inclusive && r.From != "" {
		e, err := l.Store.Key(ctx, r.From)
		switch {
		case err == nil:
			out = append(out, entryOf(e))
		case !errors.Is(err, metadata.ErrNotExist) && !errors.Is(err, metadata.ErrInvalidKey) && !errors.Is(err, metadata.ErrInvalid):
			return nil, err
		}
	}
	found, err := l.Store.Keys(ctx, r.From, r.Limit-len(out))
	for _, e := range found {
		out = append(out, entryOf(e))
	}
	return out, err
}

func entryOf(e metadata.KeyEntry) KeyEntry {
	return KeyEntry{Key: e.Key, Ino: e.Ino, Tensor: e.Part != ""}
}

// publicationsAtOnce is the number of entries of publish/ that are read at a time.
const publicationsAtOnce = 512

// publications lists the publications. The directory is not ordered, so it is read
// completely.
func (l LocalKeys) publications(ctx context.Context, r KeyRange) ([]KeyEntry, error) {
	var out []KeyEntry
	for after := metadata.Cookie(0); ; {
		entries, err := l.Store.ReadDir(ctx, metadata.PublishIno, after, publicationsAtOnce)
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			after = e.Cookie
			if e.Name > r.From || r.Inclusive && e.Name == r.From {
				out = append(out, KeyEntry{Key: e.Name, Ino: e.Ino})
			}
		}
	}
	slices.SortFunc(out, func(a, b KeyEntry) int { return strings.Compare(a.Key, b.Key) })
	return out[:min(len(out), r.Limit)], nil
}
