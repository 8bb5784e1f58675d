package collective

import (
	"context"

	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
)

// A window has two slots, used in turn: a rank that is one call ahead writes to the other one. A
// slot begins with a descriptor:
//
//	0   16  header, as on a link
//	16  8   number of the share of the source, from 1; 0 is none
//	24  8   offset of the source in it
//	32  8   number of the share of the result
//	40  8   offset of the result in it
//	48  1   1 if the host can't access the memory, plus twice passPath.state
const (
	describing = 64
	// windowData is the maximum size, in bytes, of a source in a slot.
	windowData = 16 << 10
	slotSize   = describing + windowData
	// windowReads bounds the bytes that each rank reads from all slots.
	windowReads = 64 << 10
)

// fitsWindow reports whether all ranks can read all sources of a task from the windows.
func fitsWindow(t *plan.Task) bool {
	n := t.Count * t.Type.Size()
	return n <= windowData && n*uint64(t.Ranks) <= windowReads
}

// slots are the windows of all ranks, in which they describe calls to each other. It
// belongs to one group; Group.mu guards it.
type slots struct {
	fabric fabric.Fabric
	seq    *sequence
	sync   *hostSync
	// window is the group's own memory that all ranks have mapped; nil if they map none.
	window *shared
}

// open maps the windows, if memory can be mapped.
func (s *slots) open(ctx context.Context, all *shares, table *region.Table) (err error) {
	if oneHost(s.fabric) {
		s.window, err = all.open(ctx, table, 2*slotSize)
	}
	return err
}

func (s *slots) close(ctx context.Context) error {
	if s.window == nil {
		return nil
	}
	err := s.window.release(ctx)
	s.window = nil
	return err
}

// mine returns our slot for the current call.
func (s *slots) mine() []byte { return s.at(s.fabric.Rank(), s.sync.base) }

func (s *slots) at(of plan.Rank, base uint64) []byte {
	at := (base & 1) * slotSize
	return s.window.ranks[of][at : at+slotSize]
}

// stamp begins the descriptor of a call with count elements, and returns our slot.
func (s *slots) stamp(count uint64) []byte {
	p := s.mine()
	s.seq.stamp((*[headSize]byte)(p), 0, count)
	return p
}

// described returns the slot of a rank in the call whose rendezvous has just completed.
//
// Errors: an OutOfStepError.
func (s *slots) described(of plan.Rank, count uint64) ([]byte, error) {
	p := s.at(of, s.sync.base-1)
	if of == s.fabric.Rank() {
		return p, nil
	}
	return p, s.seq.verify((*[headSize]byte)(p), of, 0, count)
}
