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

// Node is one incarnation of another node. Its methods send requests to it, or answer from its
// earlier answers within AttrTTL; they are the methods of objects.Store, with a user. Inode
// numbers are the node's own; its root is metadata.RootIno, and contains only the devices'
// directories.
//
// Errors, of all: those of the store there; ErrUnreachable, ErrStale, ErrDenied.
type Node struct {
	c    *Cluster
	name members.Name
	rank wire.Rank
	// record is the known information about the node. It is replaced, never changed.
	record atomic.Pointer[members.Record]
	// left is true while the view does not contain the node.
	left atomic.Bool
	// replaced is true once another incarnation has come.
	replaced atomic.Bool
	// met is true once there was a session.
	met atomic.Bool
	// session is the present session, or nil.
	session atomic.Pointer[session]
	cache   cache
	inos    inos
	pace    pace

	// files are opened again in a new session.
	files openFiles

	mu sync.Mutex
	// trying is the connection attempt in progress, or nil.
	// +checklocks:mu
	trying *attempt
	// problem is the reason why the last attempt failed, or nil.
	// +checklocks:mu
	problem error
	// +checklocks:mu
	retryAt time.Time
	// outage is not nil while the node does not answer.
	// +checklocks:mu
	outage *outage
	// +checklocks:mu
	reach outOfReach
	// ending is the reason why the last session ended, until there is another; nil if there
	// was none.
	// +checklocks:mu
	ending error
}

// Entry is one entry of a directory. Attr is nil if it must be requested.
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

// Record returns the known information about the node.
func (n *Node) Record() members.Record { return *n.record.Load() }

// Gone reports whether the incarnation has left for good.
func (n *Node) Gone() bool { return n.replaced.Load() || n.left.Load() }

// supersededBy reports whether an epoch is that of a later incarnation.
func (n *Node) supersededBy(e members.Epoch) bool {
	own := n.record.Load().Epoch
	return own != 0 && e > own
}

// learn updates the record from the view. A view that knows less, or is behind, does not
// overwrite information that the node itself has sent.
func (n *Node) learn(r members.Record) {
	old := n.record.Load()
	if r.Epoch < old.Epoch {
		r.Epoch, r.ID, r.Devices, r.Version, r.Started = old.Epoch, old.ID, old.Devices, old.Version, old.Started
		r.Held, r.Life = old.Held, old.Life
	}
	if old.Epoch == r.Epoch && old.ID == r.ID && old.Held == r.Held && old.Life == r.Life && slices.Equal(old.Addresses, r.Addresses) && slices.Equal(old.Devices, r.Devices) {
		return
	}
	n.record.Store(&r)
}

// identify updates the record with the one that the node itself has sent. It keeps the
// addresses at which the node was found.
func (n *Node) identify(r members.Record) {
	n.met.Store(true)
	old := n.record.Load()
	if r.Epoch < old.Epoch {
		return // from an earlier session
	}
	if len(old.Addresses) > 0 {
		r.Addresses = old.Addresses
	}
	n.record.Store(&r)
}

// trouble returns the reason why the node could not be reached, or why the last session ended;
// empty if there is a session, or never was one.
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

// broken records the reason why a session ended.
func (n *Node) broken(cause error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ending = cause
}

// forgive allows a new attempt to reach the node at once.
func (n *Node) forgive() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.retryAt = time.Time{}
	n.resumeLocked()
}

// forget drops cached answers, and notifies the function set by OnInvalidate.
func (n *Node) forget(what Invalidation) {
	n.cache.forget(what)
	n.inos.changed(what)
	if fn := n.c.hear.Load(); fn != nil && *fn != nil {
		(*fn)(what)
	}
}
