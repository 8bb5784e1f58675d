package collective

import (
	"context"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// hostSync waits for all ranks of one host, by counters that all of them have mapped. It
// belongs to one group; Group.mu guards it.
type hostSync struct {
	fabric fabric.Fabric
	watch  *watchdog
	// base is the counter value of the last sync; the next one uses the value after it.
	base uint64
	// entered reports that our counter is set for the current Sync.
	entered bool
}

// sync waits until all ranks have called it. step is reported by the watchdog. After an
// error sync can be called again, and waits for the same value.
func (m *hostSync) sync(ctx context.Context, step int) error {
	s, met := m.fabric.Signals(), false
	if !m.entered {
		m.entered = true
		met = s.Arrive(m.base + 1)
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

// reached returns the value that our counter has reached.
func (m *hostSync) reached() uint64 {
	if s := m.fabric.Signals(); s != nil {
		return max(m.base, s.Get(m.fabric.Rank()))
	}
	return m.base
}
