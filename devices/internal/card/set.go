package card

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/pins"
)

// Set holds the open cards of one driver: the host memory that they have registered, and
// which of them can access each other. The zero value is an empty set. It is safe for
// concurrent use and must not be copied.
type Set struct {
	pins pins.Table[*Card]

	// joining is held while access between two cards is arranged.
	joining sync.Mutex

	mu sync.RWMutex
	// reach records the pairs that the runtime was asked about.
	// +checklocks:mu
	reach map[pair]bool
}

// pair is two cards, of which worker copies from and to other.
type pair struct{ worker, other *Card }

// leave removes a closed card.
func (s *Set) leave(c *Card) error {
	s.mu.Lock()
	maps.DeleteFunc(s.reach, func(p pair, _ bool) bool { return p.worker == c || p.other == c })
	s.mu.Unlock()
	return s.pins.Leave(c)
}

// known returns the recorded result for a pair.
func (s *Set) known(p pair) (can, known bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	can, known = s.reach[p]
	return can, known
}

// BeginPeer checks the spans of a copy from another card to this one and enters both: the
// lower ordinal first, so that closing both cards can't deadlock with two copies in
// opposite directions. leave ends the operation.
func (c *Card) BeginPeer(ctx context.Context, from *Card, dst, src devices.Span) (leave func(), err error) {
	if dst.Len != src.Len {
		return nil, fmt.Errorf("copy of %v to %v on %s: %w", src.Range, dst.Range, c.spec.Info.Name, devices.ErrRange)
	}
	first, second, firstSpan, secondSpan := c, from, dst, src
	if from.spec.Info.Ordinal < c.spec.Info.Ordinal {
		first, second, firstSpan, secondSpan = from, c, src, dst
	}
	leaveFirst, err := first.Begin(ctx, firstSpan, int(firstSpan.Len))
	if err != nil {
		return nil, err
	}
	leaveSecond, err := second.Begin(ctx, secondSpan, int(secondSpan.Len))
	if err != nil {
		leaveFirst()
		return nil, err
	}
	return func() { leaveSecond(); leaveFirst() }, nil
}

// Reach returns nil once this card may copy from and to another one. join asks the runtime
// whether that is possible and arranges it, once for the pair unless it fails; mutual is
// set if it does so for both directions. The caller must have entered both cards.
func (c *Card) Reach(other *Card, mutual bool, join func() (can bool, err error)) error {
	s, p := c.spec.Set, pair{worker: c, other: other}
	can, known := s.known(p)
	if !known {
		s.joining.Lock()
		defer s.joining.Unlock()
		if can, known = s.known(p); !known {
			var err error
			if can, err = join(); err != nil {
				return err
			}
			s.mu.Lock()
			if s.reach == nil {
				s.reach = map[pair]bool{}
			}
			s.reach[p] = can
			if mutual {
				s.reach[pair{worker: other, other: c}] = can
			}
			s.mu.Unlock()
		}
	}
	if !can {
		return fmt.Errorf("%s does not reach %s: %w", c.spec.Info.Name, other.spec.Info.Name, devices.ErrUnsupported)
	}
	return nil
}
