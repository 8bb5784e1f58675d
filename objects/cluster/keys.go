package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
)

// keys is the keys of all nodes: where they are, and who may have them.
type keys struct {
	c *Cluster
	// index is the options'; nil is none.
	index keyindex.Index
	// peers are asked where there is no index, or it can't be.
	peers  *peerKeys
	claims *claimTable
}

func newKeys(c *Cluster) *keys {
	return &keys{c: c, index: c.opts.Index, peers: newPeerKeys(c), claims: newClaims(c)}
}

// spaceOf is the set of keys that is meant.
func spaceOf(published bool) keyindex.Space {
	if published {
		return keyindex.Publish
	}
	return keyindex.Keys
}

// start has the store ask before it uses a key.
func (k *keys) start(ctx context.Context) error {
	of := k.index
	if of == nil {
		of = k.peers
	}
	return k.c.opts.Store.SetAuthority(ctx, authority{k: k, of: of})
}

// stop ends that: what the node has it has alone from now on.
func (k *keys) stop(ctx context.Context) error {
	return k.c.opts.Store.SetAuthority(context.WithoutCancel(ctx), nil)
}

// find says which other node has a key.
//
// Errors: metadata.ErrNotExist; ErrUnreachable when nobody can be asked.
func (k *keys) find(ctx context.Context, s keyindex.Space, key string) (*Node, error) {
	place, err := k.place(ctx, s, key)
	if err != nil {
		return nil, err
	}
	n, err := k.c.Node(place.Node)
	if err != nil {
		// It has left, and its keys with it.
		return nil, fmt.Errorf("key %q: %w: %w", key, metadata.ErrNotExist, err)
	}
	return n, nil
}

func (k *keys) place(ctx context.Context, s keyindex.Space, key string) (keyindex.Place, error) {
	if err := metadata.ValidKey(key); err != nil {
		return keyindex.Place{}, fmt.Errorf("key %q: %w", key, err)
	}
	if k.index == nil {
		return k.peers.Find(ctx, s, key)
	}
	place, err := k.index.Find(ctx, s, key)
	if isAway(err) {
		return k.peers.Find(ctx, s, key)
	}
	return place, err
}

// isAway says that an index could not be asked.
func isAway(err error) bool {
	for _, away := range []error{coord.ErrUnavailable, coord.ErrDenied, coord.ErrClosed} {
		if errors.Is(err, away) {
			return true
		}
	}
	return false
}

// at does something at the node that has a key. When it is not there after all,
// where it is is asked again: it may have gone from one node to another.
func (k *keys) at(ctx context.Context, s keyindex.Space, key string, do func(n *Node) error) error {
	var last members.Name
	for {
		n, err := k.find(ctx, s, key)
		if err != nil {
			return err
		}
		err = do(n)
		if !errors.Is(err, metadata.ErrNotExist) && !errors.Is(err, ErrStale) || n.name == last {
			return err
		}
		last = n.name
		k.forget(s, key)
	}
}

func (k *keys) forget(s keyindex.Space, key string) {
	if k.index != nil {
		k.index.Forget(s, key)
	}
	k.peers.Forget(s, key)
}

// credOf is a user of this node as others know him.
func credOf(who objects.Caller) Cred {
	return Cred{UID: who.UID, GID: who.GID, Groups: who.Supplementary()}
}
