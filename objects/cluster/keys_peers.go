package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// peerKeys is the key index where there is no other: every node is asked for its own keys. A
// node that does not answer may have any key.
type peerKeys struct {
	c *Cluster

	mu sync.Mutex
	// ours holds the keys that we have claimed, or are claiming.
	// +checklocks:mu
	ours map[spaceKey]*ownKey
	// promised holds, for keys that other nodes were told to be free, the nodes that may have
	// them without the index knowing it: they are asked before we use such a key, or report
	// that no node has it. It is empty where there is no index.
	// +checklocks:mu
	promised map[spaceKey][]members.Name
	// promises counts them by node.
	// +checklocks:mu
	promises map[members.Name]int
	// turn counts the keys that have become ours.
	// +checklocks:mu
	turn uint64
	// comparisons records, for each node, up to which turn our keys were compared with its own,
	// and in which session.
	// +checklocks:mu
	comparisons map[members.Name]keyComparison
}

// keyComparison records a comparison of keys with another node: of those up to a turn, in a session.
type keyComparison struct {
	in   *session
	turn uint64
}

type spaceKey struct {
	space keyindex.Space
	key   string
}

// ownKey is a key that is ours or is being claimed.
type ownKey struct {
	// asking counts the calls that ask the others for it; held is true once it was granted.
	asking int
	held   bool
	// turn is the turn in which it became ours.
	turn uint64
	// lost is the node that has it instead of us; it is then asked for again.
	lost members.Name
}

func newPeerKeys(c *Cluster) *peerKeys {
	return &peerKeys{c: c, ours: map[spaceKey]*ownKey{}, promised: map[spaceKey][]members.Name{}, promises: map[members.Name]int{}, comparisons: map[members.Name]keyComparison{}}
}

// Claim makes keys ours; see keyindex.Index. Two nodes that claim a key at the same time learn
// of each other, and both decide by their names which of them gets it.
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
	q := p.claimOf(s, ask)
	q.Unindexed = true
	taken, unasked := p.whoHas(ctx, q)
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, key := range ask {
		errs[places[n]] = p.settleLocked(spaceKey{s, key}, taken[n], unasked)
	}
	return errs
}

// claimOf asks which keys a node uses, since this node claims them.
func (p *peerKeys) claimOf(s keyindex.Space, names []string) proto.HaveKeysAsk {
	return proto.HaveKeysAsk{Keys: names, Publish: s == keyindex.Publish, Claim: true, Node: string(p.c.opts.View.Self().Name)}
}

// settleLocked ends a request for a key: by is the node that has it, and unasked the error
// naming those that did not answer and may have it. Without an error the key is ours.
//
// +checklocks:p.mu
func (p *peerKeys) settleLocked(at spaceKey, by members.Name, unasked error) error {
	o := p.ours[at]
	if by == "" && unasked == nil {
		by = o.lost
	}
	var err error
	switch {
	case o.held:
	case by != "":
		o.lost, err = by, &keyindex.TakenError{Key: at.key, Node: by}
	case unasked != nil:
		err = fmt.Errorf("key %q: %w", at.key, unasked)
	default:
		p.holdLocked(o)
	}
	if o.asking--; o.asking == 0 {
		if o.lost = ""; !o.held {
			delete(p.ours, at)
		}
	}
	return err
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
		p.holdLocked(o)
	}
}

// holdLocked makes a key ours.
//
// +checklocks:p.mu
func (p *peerKeys) holdLocked(o *ownKey) {
	if !o.held {
		p.turn++
		o.held, o.turn = true, p.turn
	}
}

// holds reports whether a key is ours.
func (p *peerKeys) holds(s keyindex.Space, key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.ours[spaceKey{s, key}]
	return o != nil && o.held
}

// mustCompare reports whether our keys must be compared with those of a node: they have not been in
// its present session. Without keys there is nothing to compare.
func (p *peerKeys) mustCompare(n *Node) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, now := p.comparisons[n.name].in, n.session.Load()
	return p.turn > 0 && (now == nil || now != last)
}

// since returns the keys that have become ours since the last comparison with a node, in
// order, and the last turn.
func (p *peerKeys) since(node members.Name, s keyindex.Space) (names []string, turn uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := p.comparisons[node].turn
	for at, o := range p.ours {
		if o.held && at.space == s && o.turn > from {
			names = append(names, at.key)
		}
	}
	slices.Sort(names)
	return names, p.turn
}

// compared records that the keys up to a turn were compared with a node's.
func (p *peerKeys) compared(node members.Name, in *session, turn uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.comparisons[node] = keyComparison{in: in, turn: turn}
}

// Release releases keys; see keyindex.Index.
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

// keeps reports whether a key is ours rather than that of another node that claims it, and
// whether it is known at all. If both are claiming a key, the node with the lesser name gets
// it.
func (p *peerKeys) keeps(s keyindex.Space, key string, asker members.Name) (keeps, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch o := p.ours[spaceKey{s, key}]; {
	case o == nil:
		return false, false
	case o.held || p.c.opts.View.Self().Name < asker:
		return true, true
	default:
		o.lost = asker
		return false, true
	}
}

// maxPromised bounds the keys that one node is told to be free at a time, while the index is
// unavailable.
const maxPromised = 1 << 16

// promise records that a node is told that a key is free, and redeem that this no longer
// applies. promise reports false if the node has been told so of too many.
func (p *peerKeys) promise(at spaceKey, to members.Name) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.promised[at], to) {
		return true
	}
	if p.promises[to] == maxPromised {
		return false
	}
	p.promises[to]++
	p.promised[at] = append(p.promised[at], to)
	return true
}

func (p *peerKeys) redeem(at spaceKey, to members.Name) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(p.promised[at]), func(n members.Name) bool { return n == to })
	if len(left) < len(p.promised[at]) {
		if p.promises[to]--; p.promises[to] == 0 {
			delete(p.promises, to)
		}
	}
	if p.promised[at] = left; len(left) == 0 {
		delete(p.promised, at)
	}
}

// promisedTo returns the nodes that may have a key.
func (p *peerKeys) promisedTo(at spaceKey) []members.Name {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.promised[at])
}
