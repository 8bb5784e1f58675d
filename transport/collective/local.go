package collective

import (
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// foldPiece is the number of bytes of a result that are combined at a time: those of two
// sources and the result stay in the cache.
const foldPiece = 64 << 10

// here does what needs no link, in order.
func (l *loop) here(p *phase) error {
	for budget := 2 * piece; budget > 0 && l.local < len(p.local); {
		i := p.local[l.local]
		from := l.done[i]
		to := l.ready(i, from, l.limit(i))
		to -= to % l.prog.element
		n := min(to-min(from, to), uint64(budget))
		n -= n % l.prog.element
		if n == 0 {
			return nil
		}
		if err := l.do(&l.prog.steps[i], from, n); err != nil {
			return err
		}
		l.moved = true
		l.done[i] += n
		l.count.local += n
		budget -= int(n)
		if l.finish(i) {
			l.local++
		}
	}
	return nil
}

// do does n bytes of a step from at on.
func (l *loop) do(s *step, at, n uint64) error {
	switch s.action {
	case plan.Copy:
		copy(l.part(s.block, at, n), l.part(s.from, at, n))
	case plan.CombineFrom:
		dst := l.part(s.block, at, n)
		return elem.Combine(l.task.Op, l.task.Type, dst, dst, l.part(s.from, at, n))
	case plan.DivideBy:
		return elem.Divide(l.task.Type, l.part(s.block, at, n), uint64(l.task.Ranks))
	case plan.Fetch:
		copy(l.part(s.block, at, n), l.partOf(s.peer, s.from, at, n))
	case plan.Fold:
		return l.fold(s, at, n)
	default:
		// All others need a link.
	}
	return nil
}

// partOf is n bytes of a span of a rank's memory.
func (l *loop) partOf(r plan.Rank, s span, off, n uint64) []byte {
	m := l.peers[r][s.buffer]
	return m[s.off+off : s.off+off+n : s.off+off+n]
}

// fold combines n bytes of all ranks, and gives them to each rank of s.to.
func (l *loop) fold(s *step, at, n uint64) error {
	for end := at + n; at < end; at += foldPiece {
		if err := l.foldPiece(s, at, min(foldPiece, end-at)); err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) foldPiece(s *step, at, n uint64) error {
	ranks := len(l.peers)
	first := l.partOf(s.to[0], s.block, at, n)
	if ranks == 1 {
		copy(first, l.partOf(0, s.from, at, n))
	}
	// Only the last combination writes where a source may be.
	sum := l.partOf(0, s.from, at, n)
	for r := 1; r < ranks; r++ {
		dst := first
		if r < ranks-1 {
			dst = l.buffer[headSize : headSize+n]
		}
		if err := elem.Combine(l.task.Op, l.task.Type, dst, sum, l.partOf(plan.Rank(r), s.from, at, n)); err != nil {
			return err
		}
		sum = dst
	}
	if l.task.Op == elem.Avg {
		if err := elem.Divide(l.task.Type, first, uint64(ranks)); err != nil {
			return err
		}
	}
	for _, r := range s.to[1:] {
		copy(l.partOf(r, s.block, at, n), first)
	}
	return nil
}
