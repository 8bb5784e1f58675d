package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

const (
	// askWait is how long a node may take to say whether it has a key: who can't
	// say it soon is as good as away, since nobody's work waits for him.
	askWait = time.Second
	// askAtOnce is how many nodes are asked at the same time.
	askAtOnce = 16
)

// peerKeys is the index where there is none: every node is asked for its own
// keys. Nodes that can't be reached have none.
type peerKeys struct {
	c *Cluster

	mu sync.Mutex
	// ours are the keys that we have claimed, or are about to.
	// +checklocks:mu
	ours map[spaceKey]*ownKey
}

var _ keyindex.Index = (*peerKeys)(nil)

type spaceKey struct {
	space keyindex.Space
	key   string
}

// ownKey is a key of ours.
type ownKey struct {
	// asking counts the calls that ask the others for it; held says that it was
	// granted.
	asking int
	held   bool
	// lost is who has it in our place; it is asked for again then.
	lost members.Name
}

func newPeerKeys(c *Cluster) *peerKeys {
	return &peerKeys{c: c, ours: map[spaceKey]*ownKey{}}
}

// Claim makes keys ours; see keyindex.Index. Two nodes that claim a key at the
// same time hear of each other, and both know by their names whose it is.
func (p *peerKeys) Claim(ctx context.Context, s keyindex.Space, names []string) []error {
	errs := make([]error, len(names))
	var ask []string
	var places []int
	p.mu.Lock()
	for i, key := range names {
		at := spaceKey{s, key}
		o := p.ours[at]
		if o == nil {
			o = &ownKey{}
			p.ours[at] = o
		}
		if o.held {
			continue
		}
		o.asking++
		ask, places = append(ask, key), append(places, i)
	}
	p.mu.Unlock()
	taken := p.whoHas(ctx, proto.HaveKeysAsk{Keys: ask, Publish: s == keyindex.Publish, Claim: true, Node: string(p.c.opts.View.Self().Name)})
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, key := range ask {
		if by := p.settleLocked(spaceKey{s, key}, taken[n]); by != "" {
			errs[places[n]] = &keyindex.TakenError{Key: key, Node: by}
		}
	}
	return errs
}

// settleLocked ends a question for a key, and says who has it if we don't.
//
// +checklocks:p.mu
func (p *peerKeys) settleLocked(at spaceKey, by members.Name) members.Name {
	o := p.ours[at]
	if o == nil { // given up meanwhile
		return by
	}
	o.asking--
	if by == "" {
		by = o.lost
	}
	if by == "" {
		o.held = true
		return ""
	}
	if o.lost = by; o.asking == 0 {
		o.lost = ""
		if !o.held {
			delete(p.ours, at)
		}
	}
	if o.held {
		return ""
	}
	return by
}

// Have makes keys ours; see keyindex.Index.
func (p *peerKeys) Have(s keyindex.Space, names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range names {
		at := spaceKey{s, key}
		o := p.ours[at]
		if o == nil {
			o = &ownKey{}
			p.ours[at] = o
		}
		o.held = true
	}
}

// Release gives keys up; see keyindex.Index.
func (p *peerKeys) Release(s keyindex.Space, names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range names {
		at := spaceKey{s, key}
		if o := p.ours[at]; o != nil {
			if o.held = false; o.asking == 0 {
				delete(p.ours, at)
			}
		}
	}
}

// Has says whether a key is ours, or about to be; see keyindex.Index.
func (p *peerKeys) Has(s keyindex.Space, key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ours[spaceKey{s, key}] != nil
}

// keeps says whether a key is ours rather than another node's that claims it. A
// key that both are about to claim is the lesser name's.
func (p *peerKeys) keeps(s keyindex.Space, key string, asker members.Name) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch o := p.ours[spaceKey{s, key}]; {
	case o == nil:
		return false
	case o.held || p.c.opts.View.Self().Name < asker:
		return true
	default:
		o.lost = asker
		return false
	}
}

// whoHas asks all nodes for keys. For each it is a node that has it, or empty.
func (p *peerKeys) whoHas(ctx context.Context, q proto.HaveKeysAsk) []members.Name {
	found := make([]members.Name, len(q.Keys))
	if len(q.Keys) == 0 {
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	var mu sync.Mutex
	p.each(ctx, func(ctx context.Context, n *Node) {
		for from := 0; from < len(q.Keys); from += proto.MaxKeys {
			part := q
			part.Keys = q.Keys[from:min(from+proto.MaxKeys, len(q.Keys))]
			there, err := n.haveKeys(ctx, part)
			if err != nil {
				return
			}
			mu.Lock()
			for i, is := range there {
				if at := &found[from+i]; is && (*at == "" || n.name < *at) {
					*at = n.name
				}
			}
			mu.Unlock()
		}
	})
	return found
}

// haveKeys asks a node which keys can be seen there.
func (n *Node) haveKeys(ctx context.Context, q proto.HaveKeysAsk) ([]bool, error) {
	var out proto.HaveKeysAnswer
	if err := n.ask(ctx, question{method: proto.MethodHaveKeys, in: &q, out: &out, again: true}); err != nil {
		return nil, err
	}
	if len(out.There) != len(q.Keys) {
		return nil, fmt.Errorf("node %s: %d answers for %d keys: %w", n.name, len(out.There), len(q.Keys), proto.ErrBody)
	}
	return out.There, nil
}

// each does something with every node that can be reached, a few at a time. One
// that could not be the last time is tried in the background, for the next.
func (p *peerKeys) each(ctx context.Context, do func(ctx context.Context, n *Node)) {
	var work sync.WaitGroup
	slots := make(chan struct{}, askAtOnce)
	for _, r := range p.c.opts.View.Nodes() {
		n, err := p.c.Node(r.Name)
		if err != nil {
			continue
		}
		if n.session.Load() == nil && n.trouble(true) != "" {
			_, _ = n.attempt() //nolint:contextcheck // it goes on behind the question, for the next
			continue
		}
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			do(ctx, n)
		})
	}
	work.Wait()
}

// Find says which node has a key; see keyindex.Index.
func (p *peerKeys) Find(ctx context.Context, s keyindex.Space, key string) (keyindex.Place, error) {
	node := p.whoHas(ctx, proto.HaveKeysAsk{Keys: []string{key}, Publish: s == keyindex.Publish})[0]
	if node == "" {
		return keyindex.Place{}, errors.Join(ctx.Err(), fmt.Errorf("no node that answers has key %q: %w", key, metadata.ErrNotExist))
	}
	return keyindex.Place{Key: key, Node: node}, nil
}

// Forget does nothing: nothing is remembered.
func (p *peerKeys) Forget(keyindex.Space, string) {}

// List lists the keys of the others; see keyindex.Index.
func (p *peerKeys) List(ctx context.Context, s keyindex.Space, after string, limit int) ([]keyindex.Place, error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	ask := proto.ListKeysAsk{After: after, Limit: uint32(min(max(limit, 1), maxListed)), Publish: s == keyindex.Publish}
	limit = int(ask.Limit)
	var mu sync.Mutex
	var all []keyindex.Place
	p.each(ctx, func(ctx context.Context, n *Node) {
		var out proto.ListKeysAnswer
		if n.ask(ctx, question{method: proto.MethodListKeys, in: &ask, out: &out, again: true}) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, key := range out.Keys {
			if key > after && metadata.ValidKey(key) == nil {
				all = append(all, keyindex.Place{Key: key, Node: n.name})
			}
		}
	})
	slices.SortFunc(all, func(a, b keyindex.Place) int {
		switch {
		case a.Key < b.Key, a.Key == b.Key && a.Node < b.Node:
			return -1
		case a == b:
			return 0
		}
		return 1
	})
	all = slices.CompactFunc(all, func(a, b keyindex.Place) bool { return a.Key == b.Key })
	return all[:min(len(all), limit)], nil
}

// errPoll is why peers can't be watched.
var errPoll = errors.New("cluster: peers are asked again and again")

// Watch can't be: who waits for keys asks again and again.
func (p *peerKeys) Watch(context.Context, keyindex.Space, []string) (keyindex.Watch, error) {
	return nil, errPoll
}

// State counts our keys; see keyindex.Index.
func (p *peerKeys) State() keyindex.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	var s keyindex.State
	for _, o := range p.ours {
		if o.held {
			s.Keys++
		}
	}
	return s
}
