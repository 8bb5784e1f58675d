package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// askAtOnce bounds the number of nodes that are asked at the same time.
const askAtOnce = 16

// UnaskedError reports that it is unknown whether a key is in use: nodes that may have it do
// not answer. It wraps ErrUnreachable.
type UnaskedError struct {
	// Nodes are the nodes that did not answer, by name.
	Nodes []members.Name
	// Cause is the reason why the first of them did not.
	Cause error
	// wayOut describes the remedy.
	wayOut string
}

// Error returns the nodes, the cause and the remedy.
func (e *UnaskedError) Error() string {
	names := make([]string, len(e.Nodes))
	for i, name := range e.Nodes {
		names[i] = string(name)
	}
	which := "node "
	if len(names) > 1 {
		which = "nodes "
	}
	return fmt.Sprintf("%s%s can't be asked for keys (%v); %s", which, strings.Join(names, ", "), e.Cause, e.wayOut)
}

// Unwrap returns ErrUnreachable only: the error of a node says nothing about the key.
func (e *UnaskedError) Unwrap() error { return ErrUnreachable }

// inquiry is one request that is sent to all nodes.
type inquiry struct {
	mu sync.Mutex
	// +checklocks:mu
	silent map[members.Name]error
}

// failed records that a node did not answer.
func (q *inquiry) failed(name members.Name, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.silent == nil {
		q.silent = map[members.Name]error{}
	}
	q.silent[name] = err
}

// outcome returns an *UnaskedError if nodes did not answer, and the context's error if that
// has ended.
func (q *inquiry) outcome(ctx context.Context, wayOut string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.silent) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	nodes := slices.Sorted(maps.Keys(q.silent))
	return &UnaskedError{Nodes: nodes, Cause: q.silent[nodes[0]], wayOut: wayOut}
}

// whoHas asks all nodes for keys. For each key it returns a node that has it, or "". The error
// names the nodes that may have the keys for which the result is "". It does not wait for more
// answers once every key has been found.
//
// Errors: *UnaskedError; the context's.
func (p *peerKeys) whoHas(ctx context.Context, q proto.HaveKeysAsk) ([]members.Name, error) {
	found := make([]members.Name, len(q.Keys))
	if len(q.Keys) == 0 {
		return found, nil
	}
	asking, enough := context.WithCancel(ctx)
	defer enough()
	var mu sync.Mutex
	left := len(q.Keys)
	err := p.each(ctx, asking, func(n *Node) error {
		return n.haveAll(asking, q, func(i int, has bool) {
			if !has {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if found[i] == "" {
				left--
			}
			if found[i] == "" || n.name < found[i] {
				found[i] = n.name
			}
			if left == 0 {
				enough()
			}
		})
	})
	if left == 0 {
		err = nil
	}
	return found, err
}

// haveAll asks a node for any number of keys and calls tell with the index of each one, and
// with whether the node has it.
func (n *Node) haveAll(ctx context.Context, q proto.HaveKeysAsk, tell func(i int, has bool)) error {
	at := 0
	for part := range slices.Chunk(q.Keys, proto.MaxKeys) {
		q.Keys = part
		there, err := n.haveKeys(ctx, q)
		if err != nil {
			return err
		}
		for _, has := range there {
			tell(at, has)
			at++
		}
	}
	return nil
}

// haveKeys asks a node which of some keys are visible there.
func (n *Node) haveKeys(ctx context.Context, q proto.HaveKeysAsk) ([]bool, error) {
	out, err := query[proto.HaveKeysAnswer](ctx, n, proto.MethodHaveKeys, &q)
	if err != nil {
		return nil, err
	}
	if len(out.There) != len(q.Keys) {
		return nil, fmt.Errorf("node %s sent %d answers for %d keys: %w", n.name, len(out.There), len(q.Keys), proto.ErrBody)
	}
	return out.There, nil
}

// each asks every node of the view, a few at a time, until asking ends. A node that leaves the
// view in the meantime need not answer.
//
// Errors: *UnaskedError; the context's.
func (p *peerKeys) each(ctx, asking context.Context, ask func(n *Node) error) error {
	var q inquiry
	nodes := p.c.opts.View.Nodes()
	_ = objects.Parallel(asking, len(nodes), askAtOnce, func(asking context.Context, i int) error {
		if n, err := p.c.Node(nodes[i].Name); err == nil {
			if err = p.askPresent(asking, n, ask); err != nil {
				q.failed(n.name, err)
			}
		}
		return nil // each node has its own error
	})
	return q.outcome(ctx, p.wayOut())
}

// wayOut describes what the user can do about a node that does not answer.
func (p *peerKeys) wayOut() string {
	if p.c.opts.Index != nil {
		return "try again when the node or etcd is available again"
	}
	return "try again when the node is available again or, if it does not return, after `hmcfs nodes --forget NODE`"
}

// askPresent asks the present incarnation of a node. If the node has left the view, it returns
// nil.
func (p *peerKeys) askPresent(ctx context.Context, n *Node, ask func(n *Node) error) error {
	for {
		err := ask(n)
		if err == nil || ctx.Err() != nil {
			return err
		}
		now, gone := p.c.Node(n.name)
		if gone != nil {
			return nil
		}
		if now == n {
			return err
		}
		n = now
	}
}

// Find returns the node that has a key; see keyindex.Index.
func (p *peerKeys) Find(ctx context.Context, s keyindex.Space, key string) (keyindex.Place, error) {
	found, err := p.whoHas(ctx, proto.HaveKeysAsk{Keys: []string{key}, Publish: s == keyindex.Publish})
	if err != nil {
		return keyindex.Place{}, fmt.Errorf("key %q: %w", key, err)
	}
	if found[0] == "" {
		return keyindex.Place{}, fmt.Errorf("key %q: %w", key, metadata.ErrNotExist)
	}
	return keyindex.Place{Key: key, Node: found[0]}, nil
}

// List lists the keys of the other nodes; see keyindex.Index. With an *UnaskedError it returns
// those of the nodes that answer.
func (p *peerKeys) List(ctx context.Context, s keyindex.Space, after string, limit int) ([]keyindex.Place, error) {
	ask := proto.ListKeysAsk{After: after, Limit: uint32(min(max(limit, 1), maxListed)), Publish: s == keyindex.Publish}
	limit = int(ask.Limit)
	var mu sync.Mutex
	var all []keyindex.Place
	err := p.each(ctx, ctx, func(n *Node) error {
		out, err := query[proto.ListKeysAnswer](ctx, n, proto.MethodListKeys, &ask)
		if err != nil {
			return err
		}
		if len(out.Keys) > limit {
			return fmt.Errorf("node %s sent %d keys, but at most %d were requested: %w", n.name, len(out.Keys), limit, proto.ErrBody)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, key := range out.Keys {
			if key > after && metadata.ValidKey(key) == nil {
				all = append(all, keyindex.Place{Key: key, Node: n.name})
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b keyindex.Place) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Node, b.Node))
	})
	all = slices.CompactFunc(all, func(a, b keyindex.Place) bool { return a.Key == b.Key })
	return all[:min(len(all), limit)], err
}
