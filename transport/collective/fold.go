package collective

import (
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// foldPiece is the number of bytes of a result that are combined at a time: two sources and
// the result stay in the cache.
const foldPiece = 64 << 10

// folder combines mapped memory of all ranks, without a link. It belongs to one group;
// Group.mu guards it.
type folder struct {
	// peers holds the buffers of all ranks, by plan.Buffer.
	peers [][4][]byte
	// buffer holds partial sums; it has at least foldPiece bytes.
	buffer []byte
}

// part returns n bytes of a span of a rank's memory, starting at offset off.
func (f *folder) part(r plan.Rank, s span, off, n uint64) []byte {
	m := f.peers[r][s.Buffer]
	return m[s.Off+off : s.Off+off+n : s.Off+off+n]
}

// fold combines n bytes of all ranks, and stores the result at each rank of s.To.
func (f *folder) fold(t *plan.Task, s *plan.Step, at, n uint64) error {
	for end := at + n; at < end; at += foldPiece {
		if err := f.foldPiece(t, s, at, min(foldPiece, end-at)); err != nil {
			return err
		}
	}
	return nil
}

func (f *folder) foldPiece(t *plan.Task, s *plan.Step, at, n uint64) error {
	ranks := len(f.peers)
	first := f.part(s.To[0], s.Block, at, n)
	if ranks == 1 {
		copy(first, f.part(0, s.From, at, n))
	}
	// Only the last combination writes to the block, which may be a source.
	sum := f.part(0, s.From, at, n)
	for r := 1; r < ranks; r++ {
		dst := first
		if r < ranks-1 {
			dst = f.buffer[:n]
		}
		if err := elem.Combine(t.Op, t.Type, dst, sum, f.part(plan.Rank(r), s.From, at, n)); err != nil {
			return err
		}
		sum = dst
	}
	if t.Op == elem.Avg {
		if err := elem.Divide(t.Type, first, uint64(ranks)); err != nil {
			return err
		}
	}
	for _, r := range s.To[1:] {
		copy(f.part(r, s.Block, at, n), first)
	}
	return nil
}
