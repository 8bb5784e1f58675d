package cluster

import (
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Break ends the session with a node.
func (c *Cluster) Break(name members.Name) error { return c.comm.Disconnect(wire.Rank(name.Rank())) }

// Dials counts the connections that were made.
func (c *Cluster) Dials() uint64 { return c.comm.Stats().Dials }

// Lanes returns the methods' lanes.
func Lanes() map[rpc.Method]rpc.Lane { return lanes() }

// Known returns the number of known nodes.
func (c *Cluster) Known() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.nodes)
}

// Forget drops everything that is cached.
func (n *Node) Forget() { n.cache.forget(Invalidation{All: true}) }
