package cluster

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Node is one incarnation of another node. Its methods ask it, or answer from
// what it has said within AttrTTL; they are the methods of objects.Store, for a
// user. Inode numbers are the node's own; its root is metadata.RootIno, and has
// the devices' directories alone.
//
// Errors, of all: those of the store there; ErrUnreachable, ErrStale, ErrDenied.
type Node struct {
	c    *Cluster
	name members.Name
	rank wire.Rank
	// record has what is known of the node. It is replaced, never changed.
	record atomic.Pointer[members.Record]
	// left says that the view does not have it now.
	left atomic.Bool
	// replaced says that another incarnation has come.
	replaced atomic.Bool
	// met says that there was a session.
	met atomic.Bool
	// session is the present one, or nil.
	session atomic.Pointer[session]
	cache   cache
	inos    inos
	pace    pace

	mu sync.Mutex
	// trying is being connected, or nil.
	// +checklocks:mu
	trying *attempt
	// problem is why the last attempt failed, or nil.
	// +checklocks:mu
	problem error
	// +checklocks:mu
	retryAt time.Time
	// outage is not nil while the node does not answer.
	// +checklocks:mu
	outage *outage
	// ending is why the last session ended, until there is another; nil where
	// there was none.
	// +checklocks:mu
	ending error
}

// Entry is one entry of a directory. Attr is nil where it has to be asked for.
type Entry struct {
	metadata.Entry
	Attr *objects.Attr
}

func newNode(c *Cluster, r members.Record) *Node {
	n := &Node{c: c, name: r.Name, rank: wire.Rank(r.Name.Rank())}
	n.cache.open(c.opts.AttrTTL)
	n.record.Store(&r)
	return n
}

// Record returns what is known of the node.
func (n *Node) Record() members.Record { return *n.record.Load() }

// Gone says that the incarnation has left for good.
func (n *Node) Gone() bool { return n.replaced.Load() || n.left.Load() }

// supersededBy says whether an epoch is that of a later incarnation.
func (n *Node) supersededBy(e members.Epoch) bool {
	own := n.record.Load().Epoch
	return own != 0 && e > own
}

// learn takes what the view says. A view that knows less, or is behind, does
// not take away what the node has said itself.
func (n *Node) learn(r members.Record) {
	old := n.record.Load()
	if r.Epoch < old.Epoch {
		r.Epoch, r.ID, r.Devices, r.Version, r.Started = old.Epoch, old.ID, old.Devices, old.Version, old.Started
	}
	if old.Epoch == r.Epoch && old.ID == r.ID && slices.Equal(old.Addresses, r.Addresses) && slices.Equal(old.Devices, r.Devices) {
		return
	}
	n.record.Store(&r)
}

// identify takes what the node has said of itself. It keeps the addresses by
// which it was found.
func (n *Node) identify(r members.Record) {
	n.met.Store(true)
	old := n.record.Load()
	if r.Epoch < old.Epoch {
		return // of a session that was before
	}
	if len(old.Addresses) > 0 {
		r.Addresses = old.Addresses
	}
	n.record.Store(&r)
}

// trouble is why it could not be reached, or why the last session ended; empty
// where there is one, or was none.
func (n *Node) trouble(connected bool) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.problem != nil:
		return n.problem.Error()
	case n.ending != nil && !connected:
		return fmt.Sprintf("the session ended: %v", n.ending)
	}
	return ""
}

// broken notes why a session ended.
func (n *Node) broken(cause error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ending = cause
}

// forgive has the node tried again at once.
func (n *Node) forgive() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.retryAt = time.Time{}
	n.resumeLocked()
}

// forget drops what may not be remembered, and tells who listens.
func (n *Node) forget(what Invalidation) {
	n.cache.forget(what)
	n.inos.changed(what)
	if fn := n.c.hear.Load(); fn != nil {
		(*fn)(what)
	}
}
