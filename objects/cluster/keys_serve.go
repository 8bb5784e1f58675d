package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// maxListed bounds the keys that are listed at once.
const maxListed = 1024

// handlers returns the handlers of the methods for keys.
func (k *keys) handlers() map[rpc.Method]rpc.Handler {
	s := k.c.server
	return map[rpc.Method]rpc.Handler{
		proto.MethodFindKey:     answer(s, k.serveFind),
		proto.MethodListKeys:    answer(s, k.serveList),
		proto.MethodKeyInfo:     answer(s, k.serveInfo),
		proto.MethodDropKey:     answer(s, k.serveDrop),
		proto.MethodExpireKey:   answer(s, k.serveExpire),
		proto.MethodHaveKeys:    answer(s, k.serveHave),
		proto.MethodCompareKeys: answer(s, k.serveCompare),
		proto.MethodClaim:       answer(s, k.serveClaim),
		proto.MethodTake:        answer(s, k.serveTake),
		proto.MethodReceived:    answer(s, k.serveReceived),
	}
}

// serveFind returns the path of a key's object. No permission is needed, as for listing keys/.
func (k *keys) serveFind(ctx context.Context, _ *servedSession, q *proto.KeyAsk) (any, error) {
	store := k.c.opts.Store
	if q.Publish {
		if err := k.published(ctx, q.Key); err != nil {
			return nil, err
		}
		return &proto.KeyAnswer{}, nil
	}
	there, err := store.KeyThere(ctx, q.Key)
	if err == nil && !there {
		err = fmt.Errorf("key %q: %w", q.Key, metadata.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	path, err := store.KeyPath(ctx, q.Key)
	if err != nil {
		return nil, err
	}
	return &proto.KeyAnswer{Path: path}, nil
}

// published fails unless there is a publication under a key that can be received.
func (k *keys) published(ctx context.Context, key string) error {
	a, err := k.c.opts.Store.Lookup(ctx, metadata.PublishIno, key)
	if err == nil && (a.Taken || !a.IsRegular()) {
		err = fmt.Errorf("%q has already been received: %w", key, metadata.ErrNotExist)
	}
	return err
}

// serveList returns this node's own keys.
func (k *keys) serveList(ctx context.Context, _ *servedSession, q *proto.ListKeysAsk) (any, error) {
	own := objects.LocalKeys{Store: k.c.opts.Store}
	entries, err := own.List(ctx, objects.KeyRange{
		Published: q.Publish, From: q.After, Limit: int(min(max(q.Limit, 1), maxListed)),
	})
	if err != nil {
		return nil, err
	}
	out := &proto.ListKeysAnswer{Keys: make([]string, len(entries))}
	for i, e := range entries {
		out.Keys[i] = e.Key
	}
	return out, nil
}

// serveInfo returns the information about a key, or about a publication, that the user may
// see.
func (k *keys) serveInfo(ctx context.Context, _ *servedSession, q *proto.KeyAsk) (any, error) {
	var out proto.KeyAnswer
	err := k.as(ctx, q.Cred, func(h *objects.Holder) error {
		tell := h.KeyInfo
		if q.Publish {
			tell = h.PublicationInfo
		}
		info, err := tell(ctx, q.Key)
		if err != nil {
			return err
		}
		out.Attr, out.Blobs, out.Off = attrToProto(&info.Attr, 0), info.Blobs, info.Off
		return nil
	})
	return &out, err
}

// as calls do with a holder for a user of another node.
func (k *keys) as(ctx context.Context, who proto.Cred, do func(h *objects.Holder) error) error {
	by, err := k.c.server.user(who)
	if err != nil {
		return err
	}
	h := k.c.opts.Store.NewHolder(by.Caller)
	return errors.Join(do(h), h.Close(context.WithoutCancel(ctx)))
}

// serveDrop removes a key. The requester may have cached that a key is here although it has
// since moved to another node, so a key that is not here is an error.
//
// Errors: metadata.ErrNotExist.
func (k *keys) serveDrop(ctx context.Context, _ *servedSession, q *proto.KeyAsk) (any, error) {
	if q.Publish {
		return nil, fmt.Errorf("remove a publication of another node: %w", objects.ErrUnsupported)
	}
	there, err := k.c.opts.Store.KeyThere(ctx, q.Key)
	if err != nil {
		return nil, err
	}
	err = k.as(ctx, q.Cred, func(h *objects.Holder) error { return h.Drop(ctx, []string{q.Key})[0] })
	if err == nil && !there {
		err = fmt.Errorf("remove key %q: %w", q.Key, metadata.ErrNotExist)
	}
	return nil, err
}

// serveExpire sets the expiry of a key's object.
func (k *keys) serveExpire(ctx context.Context, _ *servedSession, q *proto.ExpireKeyAsk) (any, error) {
	return nil, k.as(ctx, q.Cred, func(h *objects.Holder) error { return h.Expire(ctx, q.Key, timeFromProto(q.At)) })
}

// serveHave reports which of some keys are visible here or, to a node that is about to claim
// them, which are in use.
func (k *keys) serveHave(ctx context.Context, g *servedSession, q *proto.HaveKeysAsk) (any, error) {
	asker := k.c.byRank(g.from.Rank)
	if q.Claim && (asker == nil || string(asker.name) != q.Node) {
		return nil, fmt.Errorf("the peer is not node %q, for which it claims keys: %w", q.Node, ErrDenied)
	}
	out := &proto.HaveKeysAnswer{There: make([]bool, len(q.Keys))}
	for i, key := range q.Keys {
		if q.Claim {
			out.There[i] = k.keeps(spaceOf(q.Publish), key, asker.name, q.Unindexed)
			continue
		}
		there, err := k.has(ctx, q.Publish, key)
		if err != nil {
			return nil, err
		}
		out.There[i] = there
	}
	return out, nil
}

// keeps reports whether a key is in use here, so that another node can't have it. If the node
// may get it without the index knowing it, that is recorded before the check: a concurrent
// claim of the key on this node looks for that record afterwards.
func (k *keys) keeps(s keyindex.Space, key string, asker members.Name, unindexed bool) bool {
	at := spaceKey{s, key}
	if metadata.ValidKey(key) != nil {
		return true
	}
	noted := k.index != nil && unindexed
	if noted && !k.peers.promise(at, asker) {
		return true
	}
	keeps, known := k.peers.keeps(s, key, asker)
	if !known && k.index != nil {
		keeps = k.index.Has(s, key)
	}
	if keeps && noted {
		k.peers.redeem(at, asker)
	}
	return keeps
}

// has reports whether a key is visible here.
func (k *keys) has(ctx context.Context, published bool, key string) (bool, error) {
	if !published {
		return k.c.opts.Store.KeyThere(ctx, key)
	}
	err := k.published(ctx, key)
	if errors.Is(err, metadata.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
