package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// compareEvery is the interval between checks for nodes whose keys are to be compared.
const compareEvery = time.Second

// maxConflicts bounds the number of conflicts that are remembered in full.
const maxConflicts = 16

// conflicts counts the conflicts and remembers the last ones.
type conflicts struct {
	mu sync.Mutex
	// +checklocks:mu
	count uint64
	// +checklocks:mu
	last []members.KeyConflict
}

// add records a conflict. It reports false for a known one: it was found from both sides, or
// could not be resolved.
func (c *conflicts) add(one members.KeyConflict) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range c.last {
		if known.Time = one.Time; known == one {
			return false
		}
	}
	c.count++
	c.last = append(c.last, one)
	if len(c.last) > maxConflicts {
		c.last = slices.Delete(c.last, 0, 1)
	}
	return true
}

// KeyConflicts returns the number of keys that were found in use at two nodes since the node
// joined, and the last such conflicts.
func (c *Cluster) KeyConflicts() (count uint64, last []members.KeyConflict) {
	all := &c.keys.conflicts
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.count, slices.Clone(all.last)
}

// settle records that a key is in use here and at another node. If this node yields, the
// object here loses the key.
func (k *keys) settle(ctx context.Context, s keyindex.Space, key string, by members.Name, yields bool) {
	space := objects.SpaceKeys
	if s == keyindex.Publish {
		space, yields = objects.SpacePublish, false
	}
	path, err := k.c.opts.Store.Conflict(ctx, space, key, yields)
	if errors.Is(err, metadata.ErrNotExist) {
		return // it was removed a moment ago
	}
	if err != nil {
		k.c.log.Warn("could not resolve the conflict of a key that exists on two nodes", zap.String("key", key), zap.String("node", string(by)), zap.Error(err))
		return
	}
	one := members.KeyConflict{Key: key, Published: space == objects.SpacePublish, Node: by, Kept: !yields, Path: path, Time: time.Now()}
	if !k.conflicts.add(one) {
		return
	}
	text := "a key exists on two nodes; the object of this node keeps it"
	switch {
	case one.Published:
		text = "two nodes have a publication with the same name; both remain published"
	case yields:
		text = "a key exists on two nodes; the object of this node has lost it, but remains as a file"
	}
	k.c.log.Warn(text, zap.String("key", key), zap.String("other node", string(by)), zap.String("file", path))
}

// contested resolves conflicts that the index reports: the node that it names keeps the keys,
// unless that node no longer uses them and could not inform the index yet. A node that is
// claiming a key at this moment does not keep it either: it may ask us next, and then drop
// its claim. A node that does not answer is assumed to have them, except for keys that no node
// used when they became ours: nodes ask us before they use one of these.
func (k *keys) contested(s keyindex.Space, names []string, by members.Name) (settled bool) {
	lost := k.lost(s, names, by)
	if k.c.life.Err() != nil {
		return false
	}
	for _, key := range lost {
		k.settle(k.c.life, s, key, by, true)
	}
	return len(lost) == len(names)
}

// lost returns those of our keys that the node named by the index keeps.
func (k *keys) lost(s keyindex.Space, names []string, by members.Name) (lost []string) {
	ctx, stop := context.WithTimeout(k.c.life, leaveWait) // the index must not be kept waiting
	defer stop()
	for part := range slices.Chunk(names, proto.MaxKeys) {
		used, err := k.usedBy(ctx, by, proto.HaveKeysAsk{Keys: part, Publish: s == keyindex.Publish})
		for i, key := range part {
			if err != nil && !k.peers.holds(s, key) || err == nil && used[i] {
				lost = append(lost, key)
			}
		}
	}
	return lost
}

// earlier reports whether our object keeps a key that another node has too: the object that
// was made earlier keeps it, and if both were made at the same time, that of the node with the
// lesser name.
func (k *keys) earlier(ours, theirs metadata.Timespec, by members.Name) bool {
	if ours == theirs {
		return k.c.opts.View.Self().Name < by
	}
	return theirs.After(ours)
}

// compare compares our keys with those of every node with which that has not been done in the
// present session, connecting to it if there is none. It runs until the cluster ends.
func (k *keys) compare() {
	look := time.NewTicker(compareEvery)
	defer look.Stop()
	for {
		select {
		case <-look.C:
		case <-k.c.life.Done():
			return
		}
		for _, r := range k.c.opts.View.Nodes() {
			n, err := k.c.Node(r.Name)
			if err != nil || !k.peers.mustCompare(n) {
				continue
			}
			if n.session.Load() == nil {
				_, _ = n.attempt() // the keys are compared once that has succeeded
				continue
			}
			if err = k.compareNode(k.c.life, n); err != nil {
				k.c.log.Debug("could not compare keys with a node", zap.String("node", string(n.name)), zap.Error(err))
			}
		}
	}
}

// compareNode sends a node the keys that it may not have been asked for.
func (k *keys) compareNode(ctx context.Context, n *Node) error {
	in, upTo := n.session.Load(), uint64(0)
	for _, s := range []keyindex.Space{keyindex.Keys, keyindex.Publish} {
		names, to := k.peers.since(n.name, s)
		if s == keyindex.Keys {
			upTo = to
		}
		for part := range slices.Chunk(names, proto.MaxKeys) {
			if err := k.comparePart(ctx, n, s, part); err != nil {
				return err
			}
		}
	}
	k.peers.compared(n.name, in, upTo)
	return nil
}

func (k *keys) comparePart(ctx context.Context, n *Node, s keyindex.Space, names []string) error {
	q := proto.CompareKeysAsk{Node: string(k.c.opts.View.Self().Name), Publish: s == keyindex.Publish}
	for _, key := range names {
		made, err := k.made(ctx, s, key)
		if err != nil {
			continue // it was removed in the meantime
		}
		q.Keys, q.Made = append(q.Keys, key), append(q.Made, timeToProto(made))
	}
	if len(q.Keys) == 0 {
		return nil
	}
	out, err := query[proto.CompareKeysAnswer](ctx, n, proto.MethodCompareKeys, &q)
	if err != nil {
		return err
	}
	for i, at := range out.Both {
		if at >= uint64(len(q.Keys)) || i > 0 && at <= out.Both[i-1] {
			return fmt.Errorf("node %s sent the invalid key index %d of %d: %w", n.name, at, len(q.Keys), proto.ErrBody)
		}
		ours, theirs := timeFromProto(q.Made[at]), timeFromProto(out.Made[i])
		k.settle(ctx, s, q.Keys[at], n.name, !k.earlier(ours, theirs, n.name))
	}
	return nil
}

func (k *keys) made(ctx context.Context, s keyindex.Space, key string) (metadata.Timespec, error) {
	space := objects.SpaceKeys
	if s == keyindex.Publish {
		space = objects.SpacePublish
	}
	return k.c.opts.Store.KeyMade(ctx, space, key)
}

// serveCompare compares the keys of another node with ours. Each node resolves its own side of
// the conflicts found.
func (k *keys) serveCompare(ctx context.Context, g *servedSession, q *proto.CompareKeysAsk) (any, error) {
	asker := k.c.byRank(g.from.Rank)
	if asker == nil || string(asker.name) != q.Node {
		return nil, fmt.Errorf("the peer is not node %q, whose keys it compares: %w", q.Node, ErrDenied)
	}
	out := &proto.CompareKeysAnswer{}
	if k.index != nil {
		return out, nil // the index reports conflicts
	}
	s := spaceOf(q.Publish)
	for i, key := range q.Keys {
		if !k.peers.holds(s, key) {
			continue
		}
		made, err := k.made(ctx, s, key)
		if errors.Is(err, metadata.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out.Both, out.Made = append(out.Both, uint64(i)), append(out.Made, timeToProto(made))
	}
	for i, at := range out.Both {
		keeps := k.earlier(timeFromProto(out.Made[i]), timeFromProto(q.Made[at]), asker.name)
		k.settle(ctx, s, q.Keys[at], asker.name, !keeps)
	}
	return out, nil
}
