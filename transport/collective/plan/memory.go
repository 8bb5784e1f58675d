package plan

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices/elem"
)

// memory holds the contents of the buffers of all ranks during the proof of a plan.
type memory struct {
	*checker
	trees trees
	// stores is indexed by rank and buffer.
	stores [][Scratch + 1]store
}

func (c *checker) memory() *memory {
	m := &memory{checker: c, trees: make(trees), stores: make([][Scratch + 1]store, len(c.programs))}
	for r := range m.stores {
		for b := Source; b <= Scratch; b++ {
			if n := c.size(Rank(r), b); n > 0 {
				m.stores[r][b] = store{{Range: Range{Len: n}}}
			}
		}
		if n := c.task.SourceLen(Rank(r)); n > 0 {
			m.write(Rank(r), c.task.Place(Rank(r), Block{Source, Range{Len: n}}), source(Rank(r), Range{Len: n}))
		}
	}
	return m
}

// source returns some elements of a rank's source.
func source(r Rank, g Range) store {
	return store{{Range: Range{Len: g.Len}, value: value{terms: 1 << r, tree: int(r), fold: r == 0}, from: g.Off}}
}

func (m *memory) read(r Rank, k Block) store { return m.stores[r][k.Buffer].read(k.Range) }

func (m *memory) write(r Rank, k Block, in store) {
	m.stores[r][k.Buffer] = m.stores[r][k.Buffer].write(k.Range, in)
}

// run executes the steps of one node. In it the sender comes before the receiver.
func (m *memory) run(members []member) error {
	var sent store
	for _, s := range members {
		out, err := m.step(s.rank, s.step, sent)
		if err != nil {
			return m.wrong(s.rank, s.index, "%v", err)
		}
		sent = out
	}
	return nil
}

// step executes a step, which receives sent, and returns what it sends.
func (m *memory) step(r Rank, s *Step, sent store) (out store, err error) {
	switch s.Action {
	case Send:
		out = m.read(r, s.Block)
		return out, out.written()
	case Receive:
		out = sent
	case ReceiveCombine:
		out, err = m.combine(m.read(r, s.From), sent)
	case Copy:
		out = m.read(r, s.From)
	case CombineFrom:
		out, err = m.combine(m.read(r, s.Block), m.read(r, s.From))
	case DivideBy:
		out, err = m.divide(m.read(r, s.Block))
	case Fetch:
		out = m.read(s.Peer, s.From)
	case Fold:
		return nil, m.fold(s)
	case Sync:
		return nil, nil
	}
	if err == nil {
		err = out.written()
	}
	if err == nil {
		m.write(r, s.Block, out)
	}
	return nil, err
}

// written returns an error if an element was never written.
func (s store) written() error {
	for _, p := range s {
		if p.terms == 0 {
			return fmt.Errorf("element %d of the data was never written", p.Off)
		}
	}
	return nil
}

func (m *memory) combine(a, b store) (store, error) {
	var out store
	err := a.both(b, func(x, y part) error {
		sum, err := m.trees.combine(x, y)
		out = append(out, sum)
		return err
	})
	return out, err
}

func (m *memory) divide(s store) (store, error) {
	for i := range s {
		if s[i].divided || m.task.Op != elem.Avg {
			return nil, fmt.Errorf("element %d of the data must not be divided", s[i].Off)
		}
		s[i].divided = true
	}
	return s, nil
}

func (m *memory) fold(s *Step) error {
	out := m.read(0, s.From)
	for q := 1; q < m.task.Ranks; q++ {
		var err error
		if out, err = m.combine(out, m.read(Rank(q), s.From)); err != nil {
			return err
		}
	}
	if err := out.written(); err != nil {
		return err
	}
	if m.task.Op == elem.Avg && m.task.Ranks > 1 {
		var err error
		if out, err = m.divide(out); err != nil {
			return err
		}
	}
	for _, q := range s.To {
		m.write(q, s.Block, out)
	}
	return nil
}

// results proves that every rank has the right result in the end, and that no source that
// is not in place was overwritten.
func (m *memory) results() error {
	for r := range Rank(m.task.Ranks) {
		if err := m.result(r); err != nil {
			return fmt.Errorf("%w: result of rank %d: %w", ErrWrong, r, err)
		}
		if err := m.kept(r); err != nil {
			return fmt.Errorf("%w: source of rank %d: %w", ErrWrong, r, err)
		}
	}
	return nil
}

// result proves the result of one rank.
func (m *memory) result(r Rank) error {
	t := m.task
	place := t.Place(r, Block{Result, Range{Len: t.ResultLen(r)}})
	have, own := m.read(r, place), t.part(r)
	switch t.Kind {
	case AllReduce:
		if err := m.reduced(have, 0); err != nil {
			return err
		}
		// All ranks must have the same bits.
		return m.read(0, place).both(have, func(a, b part) error {
			if a.tree != b.tree {
				return fmt.Errorf("element %d is combined in a different order than at rank 0", a.Off)
			}
			return nil
		})
	case Reduce:
		return m.reduced(have, 0)
	case ReduceScatter:
		return m.reduced(have, own.Off)
	case Broadcast:
		return same(have, source(t.Root, Range{Len: t.Count}))
	case AllGather, AllToAll:
		for q := range Rank(t.Ranks) {
			k, from := t.part(q), Range{Len: t.part(q).Len}
			if t.Kind == AllToAll {
				k, from = Range{uint64(q) * own.Len, own.Len}, own
			}
			if err := same(have.read(k), source(q, from)); err != nil {
				return fmt.Errorf("part %d: %w", q, err)
			}
		}
	case Barrier:
	}
	return nil
}

// reduced proves that elements are the sums of those of all sources, starting at element
// from.
func (m *memory) reduced(have store, from uint64) error {
	all := ^uint64(0) >> (64 - m.task.Ranks)
	average := m.task.Op == elem.Avg && m.task.Ranks > 1
	for _, p := range have {
		switch {
		case p.terms != all:
			return fmt.Errorf("element %d combines the ranks %#x instead of %#x (bit sets)", p.Off, p.terms, all)
		case p.from != from+p.Off:
			return fmt.Errorf("element %d contains element %d of the sources", p.Off, p.from)
		case p.divided != average:
			return fmt.Errorf("element %d is in the wrong state: divided is %t", p.Off, p.divided)
		case m.task.ordered() && !p.fold:
			return fmt.Errorf("element %d is not combined in the order of the ranks", p.Off)
		}
	}
	return nil
}

// same proves that elements are unchanged from a source.
func same(have, want store) error {
	return have.both(want, func(a, b part) error {
		if a.value != b.value || a.from != b.from {
			return fmt.Errorf("element %d contains element %d of the ranks %#x (bit set)", a.Off, a.from, a.terms)
		}
		return nil
	})
}

// kept proves that a source is unchanged, apart from a result in place.
func (m *memory) kept(r Rank) error {
	n := m.task.SourceLen(r)
	if m.task.Place(r, Block{Buffer: Source}).Buffer != Source {
		return nil // the result replaces all of it
	}
	have, want := m.read(r, Block{Source, Range{Len: n}}), source(r, Range{Len: n})
	if m.task.InPlace {
		k := m.task.Place(r, Block{Result, Range{Len: m.task.ResultLen(r)}})
		want = want.write(k.Range, have.read(k.Range))
	}
	return same(have, want)
}
