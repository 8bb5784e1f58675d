package collective

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Device memory that the host does not see, of ranks that have each other's
// memory mapped, is passed through areas that all of them have mapped: the same
// combination as of memory that was shared, a segment at a time.
//
//	load segment k+3 ─┐
//	      meet, combine our slice of segment k in the areas of all, meet
//	store segment k  ─┘
const (
	// passArea is the most bytes of a segment: those of two ranks stay in the
	// cache. Smaller calls have smaller ones, down to passLeast, so that there are
	// some under way.
	passArea  = 512 << 10
	passLeast = 256 << 10
	// passAreas is the number of segments that are under way.
	passAreas = 4
)

// pathPassed is Report.Path of what went through such areas.
const pathPassed = "passed"

// passing is the areas of a group.
type passing struct {
	// areas are those of all ranks, one behind the other; nil until a call needs
	// them. Refused says that they can't be mapped.
	areas   *shared
	refused bool
	// pinned are the devices that ours are pinned for, and unpin ends that.
	pinned map[devices.Device]struct{}
	unpin  []func()
	// size is the bytes of a segment of now, the same at every rank.
	size uint64
	// to is all ranks.
	to []plan.Rank
	// moved tells that the load or store of an area is over, and away that there
	// is one.
	moved [passAreas]chan error
	away  [passAreas]bool
}

// passes says whether a call can go through areas: it has no parts.
func (r *running) passes() bool {
	switch r.task.Kind {
	case plan.AllReduce, plan.Reduce, plan.Broadcast:
		return r.task.Count > 0
	case plan.ReduceScatter, plan.AllGather, plan.AllToAll, plan.Barrier:
	}
	return false
}

// state returns what the ranks tell each other of their areas: 1 has them, 2 can't.
func (p *passing) state() byte {
	switch {
	case p.refused:
		return 2
	case p.areas != nil:
		return 1
	}
	return 0
}

// openPass makes the areas, where they can be. All ranks call it. Where not all are
// as far, as one had given up in it, all begin anew.
//
// +checklocks:g.mu
func (g *Group) openPass(ctx context.Context, apart bool) (ok bool, err error) {
	p := &g.pass
	if apart {
		if err = p.close(ctx); err != nil {
			return false, err
		}
		p.refused = false
	}
	if p.areas != nil || p.refused {
		return !p.refused, nil
	}
	b, err := g.own.table.Alloc(passAreas * passArea)
	if err != nil {
		return false, err
	}
	if p.areas, err = g.share(ctx, b); err != nil {
		p.areas = nil
		err = errors.Join(err, b.Close(context.WithoutCancel(ctx)))
		if errors.Is(err, fabric.ErrUnmapped) {
			p.refused, err = true, nil
		}
		return false, err
	}
	p.pinned, p.to = map[devices.Device]struct{}{}, nil
	for r := range g.Size() {
		p.to = append(p.to, plan.Rank(r))
	}
	for i := range p.moved {
		p.moved[i] = make(chan error, 1)
	}
	return true, nil
}

// pinPass locks our areas for the device of some memory.
//
// +checklocks:g.mu
func (g *Group) pinPass(m *memory) {
	p := &g.pass
	if !m.staged || m.held.Source().Device.Mem == nil {
		return
	}
	d := m.held.Source().Device.Mem.Device()
	if _, done := p.pinned[d]; done {
		return
	}
	unpin, _ := devices.PinHost(d, p.areas.ranks[g.Rank()])
	p.pinned[d] = struct{}{}
	p.unpin = append(p.unpin, unpin)
}

// close gives the areas back.
func (p *passing) close(ctx context.Context) error {
	for _, unpin := range p.unpin {
		unpin()
	}
	p.unpin, p.pinned = nil, nil
	if p.areas == nil {
		return nil
	}
	err := p.areas.shared.Close()
	// Ranks of this process have it mapped until they close too.
	last := p.areas.buffer
	go func() { _ = last.Close(context.WithoutCancel(ctx)) }()
	p.areas = nil
	return err
}

// doPass does a call through the areas. Ok is false, at all ranks, where there
// are none.
//
// +checklocks:g.mu
func (g *Group) doPass(ctx context.Context, r *running) (ok bool, err error) {
	if ok, err = g.openPass(ctx, r.apart); !ok {
		return false, err
	}
	g.pinPass(&r.source)
	g.pinPass(&r.result)
	total := r.task.Count * r.task.Type.Size()
	g.pass.size = min(max((total/8+passLeast-1)/passLeast*passLeast, passLeast), passArea)
	segments := int((total + g.pass.size - 1) / g.pass.size)
	err = g.passAll(ctx, r, segments)
	for i := range passAreas {
		err = errors.Join(err, g.passed(i))
	}
	if err == nil {
		// A device that fails with the last segment does so for all ranks.
		err = g.sync(ctx)
	}
	r.report.note(g.loop.count, pathPassed)
	return true, err
}

// passAll passes all segments. What is still under way is in our own areas.
//
// +checklocks:g.mu
func (g *Group) passAll(ctx context.Context, r *running, segments int) error {
	for k := range min(passAreas-1, segments) {
		g.loadArea(ctx, r, k)
	}
	for k := range segments {
		if err := g.passed(k); err != nil {
			return err
		}
		if err := g.sync(ctx); err != nil {
			return err
		}
		if err := g.combineAreas(r, k); err != nil {
			return err
		}
		if err := g.sync(ctx); err != nil {
			return err
		}
		g.storeArea(ctx, r, k)
		if next := k + passAreas - 1; next < segments {
			// The area is that of the segment before this one.
			if err := g.passed(next); err != nil {
				return err
			}
			g.loadArea(ctx, r, next)
		}
	}
	return nil
}

// passed waits until the area of a segment is not being copied.
//
// +checklocks:g.mu
func (g *Group) passed(k int) error {
	p := &g.pass
	i := k % passAreas
	if !p.away[i] {
		return nil
	}
	p.away[i] = false
	g.guard.watch.moved.Add(1)
	return <-p.moved[i]
}

// segment returns the beginning of segment k, and its length.
//
// +checklocks:g.mu
func (g *Group) segment(r *running, k int) (off, n uint64) {
	off = uint64(k) * g.pass.size
	return off, min(g.pass.size, r.task.Count*r.task.Type.Size()-off)
}

// area is the area of a rank that segment k is in.
//
// +checklocks:g.mu
func (g *Group) area(of plan.Rank, k int, n uint64) []byte {
	at := uint64(k%passAreas) * passArea
	return g.pass.areas.ranks[of][at : at+n : at+n]
}

// loadArea begins to put our source of segment k into our area.
//
// +checklocks:g.mu
func (g *Group) loadArea(ctx context.Context, r *running, k int) {
	if r.task.Kind == plan.Broadcast && g.Rank() != r.task.Root {
		return
	}
	off, n := g.segment(r, k)
	mem := g.area(g.Rank(), k, n)
	if !r.source.staged {
		copy(mem, r.source.bytes[off:])
		return
	}
	v := r.source.view
	g.passAway(k, g.alone(r), func() error { return readView(ctx, v, devices.Offset(off), mem) })
}

// storeArea begins to put what is in our area into our result of segment k.
//
// +checklocks:g.mu
func (g *Group) storeArea(ctx context.Context, r *running, k int) {
	if (r.task.Kind == plan.Broadcast) == (g.Rank() == r.task.Root) && r.task.Kind != plan.AllReduce {
		// A root has what it gives, and the others get nothing of a Reduce.
		return
	}
	off, n := g.segment(r, k)
	mem := g.area(g.Rank(), k, n)
	if !r.result.staged {
		copy(r.result.bytes[off:], mem)
		return
	}
	v := r.result.view
	g.passAway(k, g.alone(r), func() error { return writeView(ctx, v, devices.Offset(off), mem) })
}

// alone says that a call is one segment.
//
// +checklocks:g.mu
func (g *Group) alone(r *running) bool { return r.task.Count*r.task.Type.Size() <= g.pass.size }

// passAway copies an area while the ranks go on with others.
//
// +checklocks:g.mu
func (g *Group) passAway(k int, alone bool, do func() error) {
	i := k % passAreas
	done := g.pass.moved[i]
	g.pass.away[i] = true
	if alone {
		done <- do() // there is nothing to do meanwhile
		return
	}
	go func() { done <- do() }()
}

// combineAreas does our share of segment k: in the areas of all, which have all
// sources.
//
// +checklocks:g.mu
func (g *Group) combineAreas(r *running, k int) error {
	l, t := g.loop, &r.task
	_, n := g.segment(r, k)
	if t.Kind == plan.Broadcast {
		if g.Rank() != t.Root {
			copy(g.area(g.Rank(), k, n), g.area(t.Root, k, n))
		}
		return nil
	}
	for i := range l.peers {
		a := g.area(plan.Rank(i), k, n)
		l.peers[i] = [4][]byte{plan.Source: a, plan.Result: a}
	}
	share := (n/uint64(t.Ranks) + foldAlign) / foldAlign * foldAlign
	off := min(share*uint64(g.Rank()), n)
	part := span{off: off, len: min(share, n-off)}
	if part.len == 0 {
		return nil
	}
	s := step{action: plan.Fold, to: g.pass.to}
	s.block, s.from = part, part
	s.block.buffer, s.from.buffer = plan.Result, plan.Source
	if t.Kind == plan.Reduce {
		s.to = []plan.Rank{t.Root}
	}
	if err := l.fold(&s, 0, part.len); err != nil {
		return fmt.Errorf("combine segment %d: %w", k, err)
	}
	return nil
}

// foldAlign keeps two ranks from writing to one cache line.
const foldAlign = 128
