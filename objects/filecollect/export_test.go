package filecollect

import (
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Remeasure changes what was measured between the nodes of collectives, and returns of
// how many groups that is.
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

// Reference returns the results of a task, the plain way.
func Reference(t *testing.T, task Task, sources [][]byte) [][]byte {
	t.Helper()
	return reference(t, task, sources)
}

// Unwanted sets after how long parts of collectives are dropped that nobody asks for.
func (c *Collector) Unwanted(after time.Duration) { c.unwantedAfter.Store(int64(after)) }
