package tcp

import (
	"context"
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// slotsPerWay is how many pinned slots a channel keeps for each direction:
// one with the device, one with the network, one between them.
const slotsPerWay = 3

type slot = transport.Slot

// slotSet is the pinned slots of one direction of a channel. They are taken
// from the engine with the first use and kept: a channel that waited for
// another's could wait for itself.
type slotSet struct {
	once sync.Once
	free chan *slot
	err  error
}

// get returns a slot of a chunk.
func (s *slotSet) get(ctx context.Context, e *transport.Engine, chunk devices.Size) (*slot, error) {
	s.once.Do(func() {
		s.free = make(chan *slot, slotsPerWay)
		for range slotsPerWay {
			if p, ok := e.Slots().TryGet(chunk); ok {
				s.free <- p
			}
		}
		if len(s.free) == 0 {
			s.err = fmt.Errorf("no pinned slot of %v is left; allow the engine more pinned memory: %w", chunk, devices.ErrOutOfMemory)
		}
	})
	if s.err != nil {
		return nil, s.err
	}
	select {
	case p := <-s.free:
		return p, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
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
