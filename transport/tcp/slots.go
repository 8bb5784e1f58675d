package tcp

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// slotsPerWay is how many pinned slots a channel keeps for each direction:
// one with the device, one with the network, one between them.
const slotsPerWay = 3

type slot = transport.Slot

// slotSet is the pinned slots of one direction of a channel. They are taken
// from the engine with the first use and kept: a channel that waited for
// another's could wait for itself. Where the engine has none, the next use asks
// again.
type slotSet struct {
	// free and taken are made by whoever gets slots, one goroutine at a time.
	free  chan *slot
	taken int
}

// get returns a slot of a chunk.
func (s *slotSet) get(ctx context.Context, e *transport.Engine, chunk devices.Size) (*slot, error) {
	if s.taken == 0 && !s.take(e, chunk) {
		return nil, fmt.Errorf("no pinned slot of %v is left; allow the engine more pinned memory: %w", chunk, devices.ErrOutOfMemory)
	}
	select {
	case p := <-s.free:
		return p, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// take takes slots from the engine, as many as it has.
func (s *slotSet) take(e *transport.Engine, chunk devices.Size) bool {
	if s.free == nil {
		s.free = make(chan *slot, slotsPerWay)
	}
	for range slotsPerWay {
		p, ok := e.Slots().TryGet(chunk)
		if !ok {
			break
		}
		s.free <- p
		s.taken++
	}
	return s.taken > 0
}

func (s *slotSet) giveBack(p *slot) { s.free <- p }

// release gives all slots back to the engine.
//
// Preconditions: nobody holds or waits for one.
func (s *slotSet) release() {
	for len(s.free) > 0 {
		(<-s.free).Release()
	}
}
