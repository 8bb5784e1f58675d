package filecollect

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

const (
	// costsFor is the time for which a measurement between some nodes is reused: a collective
	// of small files takes less time than the measurement.
	costsFor = time.Minute
	// maxMeasured bounds the groups of nodes whose costs are kept.
	maxMeasured = 64
)

// measured holds the costs of links between nodes, as measured by the groups of earlier
// collectives that this node has initiated. All nodes of a collective are given the same
// costs.
type measured struct {
	mu sync.Mutex
	// +checklocks:mu
	groups map[string]measuredGroup
}

type measuredGroup struct {
	costs []byte
	until time.Time
}

// groupName returns a name for some nodes in their incarnations, in any order.
func groupName(ask *proto.CollectAsk) string {
	names := make([]string, len(ask.Nodes))
	for i, name := range ask.Nodes {
		names[i] = fmt.Sprintf("%s=%d", name, ask.Epochs[i])
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// get returns the costs that some nodes have measured; empty if they must measure them.
func (m *measured) get(ask *proto.CollectAsk, now time.Time) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.groups[groupName(ask)]
	if !now.Before(g.until) {
		return nil
	}
	return g.costs
}

// put stores the costs that some nodes have measured; costs that were given to them do not
// extend their lifetime. Empty costs remove the entry.
func (m *measured) put(ask *proto.CollectAsk, costs []byte, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := groupName(ask)
	switch {
	case len(costs) == 0:
		delete(m.groups, name)
		return
	case len(ask.Costs) > 0:
		return
	case m.groups == nil || len(m.groups) >= maxMeasured:
		m.groups = map[string]measuredGroup{}
	}
	m.groups[name] = measuredGroup{costs, now.Add(costsFor)}
}
