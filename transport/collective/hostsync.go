package collective

import (
	"context"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// hostSync waits for all ranks of one host, by counters that all of them have mapped.
// It belongs to one group; Group.mu guards it.
type hostSync struct {
	fabric fabric.Fabric
	watch  *watchdog
	// base is added by a call to its values of Signals, so that they only grow.
	base uint64
	// entered says that our counter was set for the Sync of now.
	entered bool
}

// sync waits until all ranks have come as far. step is where the watchdog says that we
// wait. After an error it can be called again, and waits for the same.
func (m *hostSync) sync(ctx context.Context, step int) error {
	s, met := m.fabric.Signals(), false
	if !m.entered {
		m.entered = true
		met = s.Meet(m.base + 1)
	}
	me := m.fabric.Rank()
	for r := 0; !met && r < m.fabric.Size(); r++ {
		of := plan.Rank(r)
		for of != me && s.Get(of) <= m.base {
			if err := m.watch.await(ctx, s, of, m.base+1, step); err != nil {
				return err
			}
		}
	}
	m.entered = false
	m.base++
	return nil
}

// restart has the next sync set our counter again.
func (m *hostSync) restart() { m.entered = false }

// reached returns the counter that we have reached.
func (m *hostSync) reached() uint64 {
	if s := m.fabric.Signals(); s != nil {
		return max(m.base, s.Get(m.fabric.Rank()))
	}
	return m.base
}

// raise has later counters be more than one that a rank has reached.
func (m *hostSync) raise(reached uint64) { m.base = max(m.base, reached) }
