package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport"
)

// Key locates a key of another node: it returns the node, and the path of its object there
// ("cuda0/a").
//
// Errors: metadata.ErrNotExist; ErrUnreachable; proto.ErrBody for an invalid path.
func (c *Cluster) Key(ctx context.Context, key string) (*Node, string, error) {
	var at *Node
	var out proto.KeyAnswer
	err := c.keys.at(ctx, keyindex.Keys, key, func(n *Node) (err error) {
		at = n
		out, err = query[proto.KeyAnswer](ctx, n, proto.MethodFindKey, &proto.KeyAsk{Key: key})
		return err
	})
	if err == nil && (!isPath(out.Path) || len(out.Path) > maxKeyPath) {
		// Following the path, as a symlink of this mount, must end up in that node's tree.
		err = fmt.Errorf("key %q of node %s has the invalid path %q: %w", key, at.name, out.Path[:min(len(out.Path), maxText)], proto.ErrBody)
	}
	if err != nil {
		return nil, "", err
	}
	return at, out.Path, nil
}

// maxKeyPath leaves room in a symlink's target for the path to the node's tree.
const maxKeyPath = metadata.MaxTarget - 128

// isPath reports whether each part of a path is a name.
func isPath(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if !isName(name) {
			return false
		}
	}
	return true
}

// Places lists the keys of other nodes, or their publications, after a key, in order and with
// their nodes; fewer than limit mean the end.
//
// Errors: *UnaskedError, with the keys of the nodes that answer; those of coord.
func (c *Cluster) Places(ctx context.Context, published bool, after string, limit int) ([]keyindex.Place, error) {
	var all []keyindex.Place
	self, page := c.opts.View.Self().Name, min(max(limit, 1), maxListed)
	var unasked error
	for len(all) < limit {
		places, err := c.keys.list(ctx, spaceOf(published), after, page)
		if _, some := errors.AsType[*UnaskedError](err); some {
			unasked = err
		} else if err != nil {
			return nil, err
		}
		for _, p := range places {
			after = p.Key
			if _, known := c.opts.View.Get(p.Node); known && p.Node != self {
				all = append(all, p)
			}
		}
		if len(places) < page {
			break
		}
	}
	return all[:min(len(all), limit)], unasked
}

// list lists keys, from the index or by asking all nodes.
func (k *keys) list(ctx context.Context, s keyindex.Space, after string, limit int) ([]keyindex.Place, error) {
	if k.index == nil {
		return k.peers.List(ctx, s, after, limit)
	}
	page, err := k.index.List(ctx, s, after, limit)
	if isAway(err) {
		return k.peers.List(ctx, s, after, limit)
	}
	return page, err
}

// KeyInfo returns information about a key of another node, or about a publication, for a user
// of this node.
//
// Errors: metadata.ErrNotExist; objects.ErrForbidden; those of the store there;
// ErrUnreachable, ErrStale, ErrDenied.
func (c *Cluster) KeyInfo(ctx context.Context, who objects.Caller, key string, published bool) (objects.KeyInfo, error) {
	var info objects.KeyInfo
	err := c.keys.at(ctx, spaceOf(published), key, func(n *Node) (err error) {
		info, err = n.keyInfo(ctx, who, key, published)
		return err
	})
	return info, err
}

func (n *Node) keyInfo(ctx context.Context, who objects.Caller, key string, published bool) (objects.KeyInfo, error) {
	ask := &proto.KeyAsk{Cred: credToProto(who), Key: key, Publish: published}
	out, err := query[proto.KeyAnswer](ctx, n, proto.MethodKeyInfo, ask)
	if err != nil {
		return objects.KeyInfo{}, err
	}
	a, err := attrFromProto(&out.Attr)
	if err == nil {
		err = addUp(out.Blobs, a.Size)
	}
	if err == nil && out.Off > math.MaxInt64-a.Size {
		err = fmt.Errorf("the blobs begin at %d: %w", out.Off, proto.ErrBody)
	}
	if err != nil {
		return objects.KeyInfo{}, fmt.Errorf("key %q of node %s: %w", key, n.name, err)
	}
	return objects.KeyInfo{Attr: a, Blobs: out.Blobs, Off: out.Off}, nil
}

// addUp checks that blobs make up a size: data from another machine is not trusted.
func addUp(blobs []uint64, size uint64) error {
	left := size
	for _, n := range blobs {
		if n > left {
			return fmt.Errorf("the blobs add up to more than the size of %d bytes: %w", size, proto.ErrBody)
		}
		left -= n
	}
	if left > 0 || len(blobs) == 0 {
		return fmt.Errorf("%d blobs add up to less than the size of %d bytes: %w", len(blobs), size, proto.ErrBody)
	}
	return nil
}

// maxReplaced bounds the lookups of a key that was replaced in the meantime.
const maxReplaced = 8

// ScatterKey copies the bytes of another node's key into a holder's blobs; see
// objects.Holder.Scatter.
//
// Errors: those of KeyInfo and of objects.Holder.Fill.
func (c *Cluster) ScatterKey(ctx context.Context, h *objects.Holder, sc objects.Scatter) error {
	who := h.Caller().WithGroups()
	return c.keys.at(ctx, keyindex.Keys, sc.Key, func(n *Node) error {
		for try := 0; ; try++ {
			err := n.scatter(ctx, who, h, sc)
			if !errors.Is(err, ErrStale) || n.replaced.Load() || try == maxReplaced {
				return err
			}
		}
	})
}

func (n *Node) scatter(ctx context.Context, who objects.Caller, h *objects.Holder, sc objects.Scatter) error {
	info, err := n.keyInfo(ctx, who, sc.Key, false)
	if err != nil {
		return err
	}
	if info.Attr.State == objects.StateLost {
		return fmt.Errorf("key %q of node %s: %w", sc.Key, n.name, objects.ErrLost)
	}
	f, err := n.openGen(ctx, who, info.Attr.Ino, uint64(info.Attr.Gen))
	if err != nil {
		return err
	}
	span := func(off, size uint64) transport.Span { return f.Span(info.Off+off, size) }
	err = h.Fill(ctx, sc, objects.Source{Blobs: info.Blobs, Span: span})
	if err = errors.Join(err, f.Close(ctx)); err != nil || info.Off == 0 {
		return err
	}
	// The file may have been rewritten meanwhile, with the tensor elsewhere.
	now, err := n.keyInfo(ctx, who, sc.Key, false)
	if err == nil && (now.Attr.Ino != info.Attr.Ino || now.Off != info.Off || !slices.Equal(now.Blobs, info.Blobs)) {
		err = fmt.Errorf("key %q of node %s was replaced: %w", sc.Key, n.name, ErrStale)
	}
	return err
}

// DropKey removes a key of another node; if no node has it, that is a success.
//
// Errors: those of objects.Holder.Drop; ErrUnreachable, ErrDenied.
func (c *Cluster) DropKey(ctx context.Context, who objects.Caller, key string) error {
	err := c.keys.at(ctx, keyindex.Keys, key, func(n *Node) error {
		return n.ask(ctx, question{
			method: proto.MethodDropKey, again: true,
			in: &proto.KeyAsk{Cred: credToProto(who), Key: key},
		})
	})
	c.keys.forget(keyindex.Keys, key)
	if errors.Is(err, metadata.ErrNotExist) {
		return nil
	}
	return err
}

// ExpireKey sets the expiry of a key of another node; zero means never.
//
// Errors: those of objects.Holder.Expire; ErrUnreachable, ErrDenied.
func (c *Cluster) ExpireKey(ctx context.Context, who objects.Caller, key string, at metadata.Timespec) error {
	return c.keys.at(ctx, keyindex.Keys, key, func(n *Node) error {
		return n.ask(ctx, question{
			method: proto.MethodExpireKey, again: true,
			in: &proto.ExpireKeyAsk{Cred: credToProto(who), Key: key, At: timeToProto(at)},
		})
	})
}
