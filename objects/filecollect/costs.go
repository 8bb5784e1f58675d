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
	// costsFor is the time that a measurement between some nodes is taken for what
	// it costs: a collective of small files takes less time than to measure.
	costsFor = time.Minute
	// maxMeasured is of how many groups of nodes it is kept.
	maxMeasured = 64
)

// measured has the costs of links between nodes, as the groups of earlier
// collectives that we have asked for have measured it. All nodes of a collective
// are given the same.
type measured struct {
	mu sync.Mutex
	// +checklocks:mu
	groups map[string]measuredGroup
}

type measuredGroup struct {
	costs []byte
	until time.Time
}

// groupName is that of some nodes in their incarnations, in any order.
func groupName(ask *proto.CollectAsk) string {
	names := make([]string, len(ask.Nodes))
	for i, name := range ask.Nodes {
		names[i] = fmt.Sprintf("%s=%d", name, ask.Epochs[i])
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// get returns what some nodes have measured; empty where they have to.
func (m *measured) get(ask *proto.CollectAsk, now time.Time) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.groups[groupName(ask)]
	if !now.Before(g.until) {
		return nil
	}
	return g.costs
}

// put keeps what some nodes have measured, if they have; where it was given, it
// gets no longer life by that. Empty forgets.
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
