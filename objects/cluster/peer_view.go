package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// changedNodes collects the names of nodes whose state has changed.
type changedNodes struct {
	kick chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	names map[members.Name]bool
}

func newChangedNodes() *changedNodes {
	return &changedNodes{kick: make(chan struct{}, 1), names: map[members.Name]bool{}}
}

// add records a name. It does not block.
func (n *changedNodes) add(name members.Name) {
	n.mu.Lock()
	n.names[name] = true
	n.mu.Unlock()
	select {
	case n.kick <- struct{}{}:
	default:
	}
}

// take returns and clears the recorded names.
func (n *changedNodes) take() []members.Name {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := slices.Collect(maps.Keys(n.names))
	clear(n.names)
	return names
}

// follow updates the nodes that the view reports changes of: a function that the view calls
// must not call the view itself.
func (c *Cluster) follow() {
	cancel := c.opts.View.OnEvent(func(e members.Event) { c.changed.add(e.Record.Name) })
	defer cancel()
	for {
		select {
		case <-c.changed.kick:
			for _, name := range c.changed.take() {
				c.see(name)
			}
		case <-c.life.Done():
			return
		}
	}
}

// see updates a node from the view, and returns it, or nil if the view does not contain it.
func (c *Cluster) see(name members.Name) *Node {
	r, ok := c.opts.View.Get(name)
	c.mu.Lock()
	n := c.nodes[name]
	if !ok {
		if n != nil {
			n.left.Store(true)
			c.dropLocked(n)
		}
		c.mu.Unlock()
		return nil
	}
	var old *Node
	if n == nil || n.supersededBy(r.Epoch) {
		old, n = n, newNode(c, r)
		c.nodes[name], c.ranks[n.rank] = n, n
	}
	n.left.Store(false)
	n.learn(r)
	c.mu.Unlock()
	c.retire(old)
	return n
}

// dropLocked forgets a node that has left and with which there never was a session: the number
// of such records is unbounded.
//
// +checklocks:c.mu
func (c *Cluster) dropLocked(n *Node) {
	n.mu.Lock()
	used := n.trying != nil || n.outage != nil
	n.mu.Unlock()
	if used || n.met.Load() {
		return
	}
	delete(c.nodes, n.name)
	if c.ranks[n.rank] == n {
		delete(c.ranks, n.rank)
	}
}

// met processes the record that a node has sent in a session.
func (c *Cluster) met(r members.Record) {
	if r.Name == c.opts.View.Self().Name || r.Epoch == 0 {
		return
	}
	n := c.see(r.Name)
	if n == nil {
		c.opts.View.Met(r) // a forgotten node is back
		if n = c.see(r.Name); n == nil {
			return // it is not a node of our view, but may send requests
		}
	}
	c.mu.Lock()
	var old *Node
	// It may have been replaced concurrently.
	if n = c.nodes[r.Name]; n.supersededBy(r.Epoch) {
		r.Addresses = n.Record().Addresses
		old, n = n, newNode(c, r)
		c.nodes[r.Name], c.ranks[n.rank] = n, n
	}
	n.identify(r)
	c.mu.Unlock()
	c.retire(old)
	n.forgive()
	c.opts.View.Met(r)
}

// known returns the incarnation of a node that an earlier daemon of this node knew, with an epoch; 0 is
// the present one.
func (c *Cluster) known(was members.Record) *Node {
	c.see(was.Name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.nodes[was.Name]; n != nil {
		r := n.Record()
		if r.Epoch == 0 { // nothing has been heard of it yet
			r.Epoch, r.Held = was.Epoch, was.Held
			n.record.Store(&r)
		}
		if was.Epoch == 0 || r.Epoch == was.Epoch {
			n.met.Store(true)
			return n
		}
	}
	gone := newNode(c, was)
	gone.replaced.Store(true)
	return gone
}

// retire ends an incarnation that another one has replaced.
func (c *Cluster) retire(old *Node) {
	if old == nil {
		return
	}
	old.replaced.Store(true)
	c.log.Info("a new incarnation has replaced a node", zap.String("node", string(old.name)))
	s := old.session.Load()
	old.end(s, nil)
	if s == nil {
		return
	}
	c.Go(func() {
		// The session with a machine that crashed may not have noticed yet.
		if at, err := c.comm.Origin(c.life, old.rank); err == nil && at == s.origin {
			if err = c.comm.Disconnect(old.rank); err != nil {
				c.log.Debug("disconnect", zap.String("node", string(old.name)), zap.Error(err))
			}
		}
	})
}

// byRank returns the present node with a rank, or nil.
func (c *Cluster) byRank(r wire.Rank) *Node {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.ranks[r]
}

// invalid handles a notice from a node.
func (c *Cluster) invalid(from rpc.Caller, body []byte) {
	n := c.byRank(from.Rank)
	if n == nil {
		return
	}
	var what proto.Invalid
	if err := proto.Decode(body, &what); err != nil {
		// What the notice concerned is unknown, so everything is invalidated.
		c.log.Warn("notice", zap.String("node", string(n.name)), zap.Error(err))
		n.forget(Invalidation{Node: n, All: true})
		return
	}
	c.count.invalidationsIn.Add(1)
	n.forget(Invalidation{Node: n, Inos: inosOf(what.Inos), Dirs: inosOf(what.Names)})
}

func inosOf(numbers []uint64) []objects.Ino {
	out := make([]objects.Ino, len(numbers))
	for i, ino := range numbers {
		out[i] = objects.Ino(ino)
	}
	return out
}

// named converts the error of finding a different node at an address to one with node names: a
// rank means nothing to users.
func (c *Cluster) named(err error) error {
	wrong, ok := errors.AsType[*control.WrongRankError](err)
	if !ok {
		return err
	}
	want, got := c.nameOf(wrong.Want), c.nameOf(wrong.Got)
	if got == "" {
		return fmt.Errorf("%w: the node at this address has a name other than %s; correct the list of peers, or the node's --node", ErrUnreachable, want)
	}
	return fmt.Errorf("%w: the node at this address is %s, not %s; correct the list of peers", ErrUnreachable, got, want)
}

// nameOf returns the name for which the certificate of a rank must be issued; empty if the
// view does not contain the rank.
func (c *Cluster) nameOf(r wire.Rank) string {
	if self := c.opts.View.Self().Name; wire.Rank(self.Rank()) == r {
		return string(self)
	}
	found, _ := c.opts.View.ByRank(uint32(r))
	return string(found.Name)
}

// rankOf returns the rank of the node that a certificate names.
func rankOf(name string) wire.Rank { return wire.Rank(members.Name(name).Rank()) }
