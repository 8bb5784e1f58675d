package filecollect

import (
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Remeasure changes the measured costs between the nodes of collectives, and returns the number
// of groups changed.
func (c *Collector) Remeasure(change func(*plan.Costs)) (groups int, err error) {
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

// Reference returns the results of a task, computed in the simplest way.
func Reference(t *testing.T, task Task, sources [][]byte) [][]byte {
	t.Helper()
	return reference(t, task, sources)
}

// Unwanted sets the time after which parts of collectives without requests are dropped.
func (c *Collector) Unwanted(after time.Duration) { c.unwantedAfter.Store(int64(after)) }

// HasResult reports whether a rank gets a result: all do except the ranks other than the root
// in plan.Reduce, and the root in plan.Broadcast, which has it already.
func (t Task) HasResult(rank int) bool {
	switch t.Kind {
	case plan.Reduce:
		return rank == t.Root
	case plan.Broadcast:
		return rank != t.Root
	default:
		return true
	}
}
