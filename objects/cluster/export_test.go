package cluster

import (
	"time"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Break ends the session with a node.
func (c *Cluster) Break(name members.Name) error { return c.comm.Disconnect(wire.Rank(name.Rank())) }

// Dials is how many connections were made.
func (c *Cluster) Dials() uint64 { return c.comm.Stats().Dials }

// Comm is the communicator.
func (c *Cluster) Comm() *comm.Communicator { return c.comm }

// Lanes are the methods' lanes.
func Lanes() map[rpc.Method]rpc.Lane { return lanes() }

// Known counts the nodes that are known.
func (c *Cluster) Known() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.nodes)
}

// Forget drops all that is remembered.
func (n *Node) Forget() { n.cache.forget(Invalidation{All: true}) }

// Remeasure changes what was measured between the nodes of collectives, and says of
// how many groups that is.
func (c *Cluster) Remeasure(change func(*plan.Costs)) (groups int, err error) {
	c.measured.mu.Lock()
	defer c.measured.mu.Unlock()
	for name, g := range c.measured.groups {
		costs, err := collective.DecodeCosts(g.costs)
		if err != nil {
			return 0, err
		}
		change(&costs)
		g.costs = collective.EncodeCosts(costs)
		c.measured.groups[name] = g
	}
	return len(c.measured.groups), nil
}

// Unwanted changes after how long parts of collectives are dropped that nobody asks
// for.
func (c *Cluster) Unwanted(after time.Duration) { c.server.unwantedAfter.Store(int64(after)) }
