package tcp

import (
	"context"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/region"
)

// slotsPerWay is the maximum number of fragments that a channel has between
// memory and network, for each direction: one with the device, one with the
// network, one between them.
const slotsPerWay = 3

// slot is host memory for one fragment in transit; its bytes are nil if there is
// none.
type slot struct {
	bytes []byte
	// pinned is the engine's slot, nil if the engine had none.
	pinned *transport.Slot
}

// turns bounds the fragments of one direction of a channel.
type turns chan struct{}

func newTurns() turns { return make(turns, slotsPerWay) }

// take waits for a turn.
func (t turns) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turns) giveBack() { <-t }

// newSlot returns memory for n bytes of a part of a buffer. A channel that is
// idle has no slots: there may be many more channels than the engine has pinned
// memory. If no slot is free it uses ordinary memory, which is slower: a channel
// that waited for others could, through their peers, wait for itself.
func newSlot(e *transport.Engine, b *region.Buffer, n devices.Size) slot {
	if p, ok := e.Slots().TryGet(n); ok {
		b.PinSlot(p)
		return slot{bytes: p.Bytes(), pinned: p}
	}
	return slot{bytes: make([]byte, n)}
}

func (s slot) release() {
	if s.pinned != nil {
		s.pinned.Release()
	}
}
