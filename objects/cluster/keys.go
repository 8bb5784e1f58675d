package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// keys manages the keys of all nodes: where they are, and which node may claim them.
type keys struct {
	c *Cluster
	// index is Options.Index; nil if there is none.
	index keyindex.Index
	// peers are asked if there is no index, or it is unavailable.
	peers  *peerKeys
	claims *claimTable
	// mine begins the claims of this daemon, so that its peers tell them from those of one before.
	mine [8]byte
	// conflicts are the keys that were in use at two nodes.
	conflicts conflicts
}

func newKeys(c *Cluster) *keys {
	k := &keys{c: c, index: c.opts.Index, peers: newPeerKeys(c), claims: newClaims(c)}
	_, _ = rand.Read(k.mine[:]) // never fails
	return k
}

// spaceOf returns the key space of published or of set keys.
func spaceOf(published bool) keyindex.Space {
	if published {
		return keyindex.Publish
	}
	return keyindex.Keys
}

// start makes the store ask before it uses a key.
func (k *keys) start(ctx context.Context) error {
	if k.index == nil {
		k.c.running.Go(k.compare)
	} else {
		k.index.OnContested(k.contested)
	}
	return k.c.opts.Store.SetAuthority(ctx, k)
}

// stop ends that: from now on this node uses keys without asking.
func (k *keys) stop(ctx context.Context) error {
	if k.index != nil {
		k.index.OnContested(nil)
	}
	return k.c.opts.Store.SetAuthority(context.WithoutCancel(ctx), nil)
}

// find returns the other node that has a key.
//
// Errors: metadata.ErrNotExist; ErrUnreachable, or *UnaskedError, when a node
// that may have it can't be asked.
func (k *keys) find(ctx context.Context, s keyindex.Space, key string) (*Node, error) {
	for again := false; ; again = true {
		place, err := k.place(ctx, s, key)
		if err != nil {
			return nil, err
		}
		n, err := k.c.Node(place.Node)
		if err == nil {
			return n, nil
		}
		if again {
			return nil, fmt.Errorf("node %s has key %q, but is not yet known here: %w", place.Node, key, ErrUnreachable)
		}
		// The cached place may be a node that has left, and its keys with it.
		k.forget(s, key)
	}
}

func (k *keys) place(ctx context.Context, s keyindex.Space, key string) (keyindex.Place, error) {
	if err := metadata.ValidKey(key); err != nil {
		return keyindex.Place{}, fmt.Errorf("key %q: %w", key, err)
	}
	if k.index == nil {
		return k.peers.Find(ctx, s, key)
	}
	place, err := k.index.Find(ctx, s, key)
	switch {
	case isAway(err):
		return k.peers.Find(ctx, s, key)
	case isGone(err):
		return k.unindexed(ctx, s, key, err)
	}
	return place, err
}

// unindexed looks for a key that the index does not have, at the nodes that may have it
// without the index knowing it yet. A node without a lease has none.
//
// Errors: absent if no node has it; *UnaskedError.
func (k *keys) unindexed(ctx context.Context, s keyindex.Space, key string, absent error) (keyindex.Place, error) {
	var silent inquiry
	for _, to := range k.peers.promisedTo(spaceKey{s, key}) {
		r, known := k.c.opts.View.Get(to)
		n, err := k.c.Node(to)
		if !known || err != nil || !r.Lapsed.IsZero() {
			continue
		}
		there, err := n.haveKeys(ctx, proto.HaveKeysAsk{Keys: []string{key}, Publish: s == keyindex.Publish})
		if err != nil {
			silent.failed(to, err)
		} else if there[0] {
			return keyindex.Place{Key: key, Node: to}, nil
		}
	}
	if err := silent.outcome(ctx, k.peers.wayOut()); err != nil {
		return keyindex.Place{}, fmt.Errorf("key %q: %w", key, err)
	}
	return keyindex.Place{}, absent
}

// isAway reports whether err means that an index was unavailable.
func isAway(err error) bool {
	return isAny(err, coord.ErrUnavailable, coord.ErrDenied, coord.ErrClosed)
}

// at calls do for the node that has a key. If the node does not have it after all, the key is
// located again: it may have moved from one node to another.
func (k *keys) at(ctx context.Context, s keyindex.Space, key string, do func(n *Node) error) error {
	var last members.Name
	for {
		n, err := k.find(ctx, s, key)
		if err != nil {
			return err
		}
		err = do(n)
		if !isGone(err) && !errors.Is(err, ErrStale) {
			return err
		}
		if n.name == last {
			// The index may name a node that could not release the key there yet.
			place, absent := k.unindexed(ctx, s, key, err)
			if absent != nil || place.Node == last {
				return absent
			}
			if n, err = k.c.Node(place.Node); err != nil {
				return err
			}
			return do(n)
		}
		last = n.name
		k.forget(s, key)
	}
}

func (k *keys) forget(s keyindex.Space, key string) {
	if k.index != nil {
		k.index.Forget(s, key)
	}
}
