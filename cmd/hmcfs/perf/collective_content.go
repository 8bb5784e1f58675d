package perf

import (
	"bytes"
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// content generates the ranks' numbers: small integers that depend on rank and index, so
// that every sum of them is exact in every type, and a wrong rank or index is detected.
type content struct {
	ranks int
	// numbers holds 0, 1, 2, … as elements.
	numbers [][]byte
}

// largest is the largest number in a source: the sum over plan.MaxRanks ranks is below 256,
// up to which bfloat16 represents all integers.
const largest = 3

func newContent(t elem.Type, ranks int) (*content, error) {
	if !t.Combines() {
		return nil, fmt.Errorf("elements of type %s can't be summed: %w", t, elem.ErrType)
	}
	one := make([]byte, t.Size())
	if one[0] = 1; t.Floating() {
		elem.PutFloat(t, one, 1)
	}
	c := &content{ranks: ranks, numbers: [][]byte{make([]byte, len(one))}}
	for range largest * ranks {
		next := make([]byte, len(one))
		if err := elem.Combine(elem.Sum, t, next, c.numbers[len(c.numbers)-1], one); err != nil {
			return nil, err
		}
		c.numbers = append(c.numbers, next)
	}
	return c, nil
}

// given returns the number of a rank's source at an index.
func given(rank int, at uint64) int { return int(wordAt(uint64(rank), at) & largest) }

// want returns the expected number of a result at an index.
func (c *content) want(kind plan.Kind, rank int, count, at uint64) int {
	mine := plan.Part(count, rank, c.ranks)
	switch kind {
	case plan.AllGather:
		for r := range c.ranks {
			if part := plan.Part(count, r, c.ranks); at < part.Off+part.Len {
				return given(r, at-part.Off)
			}
		}
		return -1
	case plan.Broadcast:
		return given(0, at)
	case plan.AllToAll:
		return given(int(at/mine.Len), mine.Off+at%mine.Len)
	case plan.ReduceScatter:
		at += mine.Off
	case plan.AllReduce, plan.Reduce, plan.Barrier:
	}
	sum := 0
	for r := range c.ranks {
		sum += given(r, at)
	}
	return sum
}

// call returns the call of a kind for a size, in the given memory.
func (m *Meter) call(memory *region.Buffer, kind plan.Kind, size devices.Size) (*collective.Call, error) {
	c := &collective.Call{Kind: kind}
	if kind == plan.Barrier {
		return c, nil
	}
	t, n := m.o.Type, m.g.Size()
	count := uint64(size) / t.Size()
	part := plan.Part(count, int(m.g.Rank()), n)
	whole, err := domain.NewView(memory, 0, t, count)
	if err != nil {
		return nil, err
	}
	c.Source, c.Result = whole, whole
	switch kind {
	case plan.AllReduce, plan.Reduce:
		c.Op = elem.Sum
		if m.o.Apart {
			c.Result, err = domain.NewView(memory, m.apart, t, count)
		}
	case plan.ReduceScatter:
		c.Op = elem.Sum
		if c.Result, err = whole.Slice(part.Off, part.Len); m.o.Apart {
			c.Result, err = domain.NewView(memory, m.apart, t, part.Len)
		}
	case plan.AllGather:
		if c.Source, err = whole.Slice(part.Off, part.Len); m.o.Apart {
			c.Source, err = domain.NewView(memory, m.apart, t, part.Len)
		}
	case plan.AllToAll:
		c.Result, err = domain.NewView(memory, m.apart, t, part.Len*uint64(n))
	case plan.Broadcast, plan.Barrier:
	}
	return c, err
}

// prove fills the source, makes a call, and verifies every element of the result.
func (m *Meter) prove(ctx context.Context, v *variant) error {
	c := v.call
	if c.Kind == plan.Barrier {
		return m.do(ctx, v)
	}
	me := int(m.g.Rank())
	err := m.elements(ctx, c.Source, func(p []byte, at uint64) error {
		copy(p, m.made.numbers[given(me, at)])
		return nil
	}, true)
	if err != nil {
		return fmt.Errorf("fill the source: %w", err)
	}
	if err := m.do(ctx, v); err != nil || !m.hasResult(c.Kind) {
		return err
	}
	count := max(c.Source.Count(), c.Result.Count())
	if c.Kind == plan.AllToAll {
		count = c.Source.Count()
	}
	return m.elements(ctx, c.Result, func(p []byte, at uint64) error {
		if want := m.made.numbers[m.made.want(c.Kind, me, count, at)]; !bytes.Equal(p, want) {
			return fmt.Errorf("element %d of rank %d is %x, not %x", at, me, p, want)
		}
		return nil
	}, false)
}

// elements calls fn for each element of a view, with its bytes: those of the view, or with
// write a buffer that is then written to it.
func (m *Meter) elements(ctx context.Context, v domain.View, fn func(p []byte, at uint64) error, write bool) error {
	each := devices.Size(m.o.Type.Size())
	return inPieces(v.Size(), func(p []byte, off devices.Offset) error {
		if !write {
			if err := v.Buffer().Load(ctx, transport.HostSpan(p), v.Offset()+off); err != nil {
				return err
			}
		}
		for i := devices.Size(0); i < devices.Size(len(p)); i += each {
			if err := fn(p[i:i+each], (uint64(off)+uint64(i))/uint64(each)); err != nil {
				return err
			}
		}
		if !write {
			return nil
		}
		return v.Buffer().Store(ctx, v.Offset()+off, transport.HostSpan(p))
	})
}
