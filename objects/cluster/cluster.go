package cluster

import (
	"context"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
)

// Cluster is this node among the others. Its methods may be called from any
// goroutine.
type Cluster struct{}

// Join listens and serves. Nodes are connected when they are needed. Close
// leaves.
func Join(context.Context, Options) (*Cluster, error) { return nil, ErrNoNode }

// Close ends all sessions; files that are open fail.
func (c *Cluster) Close(context.Context) error { return nil }

// Nodes lists the other nodes, by name, without asking them.
func (c *Cluster) Nodes() []NodeState { return nil }

// Node finds the present incarnation of a node, without asking it. The same
// incarnation is the same *Node.
//
// Errors: ErrNoNode.
func (c *Cluster) Node(members.Name) (*Node, error) { return nil, ErrNoNode }

// OnInvalidate has fn called when what nodes have said is not to be remembered.
// fn must not wait. nil ends it.
func (c *Cluster) OnInvalidate(func(Invalidation)) {}

// Stats counts.
func (c *Cluster) Stats() Stats { return Stats{} }

// Listening are the addresses that it really listens at.
func (c *Cluster) Listening() []string { return nil }

// End is one end of a copy: a file of this node or one of another.
type End struct {
	Local  *objects.File
	Remote *File
	Off    uint64
}

// Copy copies n bytes between two files, of which at least one is another
// node's, and returns how many, as objects.Store.CopyRange does. Between files
// of two other nodes those two move the bytes, and between two of one node it
// does.
func (c *Cluster) Copy(ctx context.Context, dst, src End, n uint64) (uint64, error) {
	_, _, _, _ = ctx, dst, src, n
	return 0, ErrUnreachable
}
