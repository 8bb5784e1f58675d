package collective

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/region"
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

// passStep is the step in which the watchdog says that such a call waits: behind the
// rendezvous of a direct one.
const passStep = 1

// passPath does calls of ranks on one host through areas of the group's own memory,
// where the host does not see that of some. It belongs to one group; Group.mu guards it.
type passPath struct {
	fabric fabric.Fabric
	table  *region.Table
	shares *shares
	meet   *hostSync
	watch  *watchdog
	folder *folder

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
func (p *passPath) state() byte {
	switch {
	case p.refused:
		return 2
	case p.areas != nil:
		return 1
	}
	return 0
}

// open makes the areas, where they can be. All ranks call it. Where not all are
// as far, as one had given up in it, all begin anew.
func (p *passPath) open(ctx context.Context, apart bool) (ok bool, err error) {
	if apart {
		if err = p.close(ctx); err != nil {
			return false, err
		}
		p.refused = false
	}
	if p.areas != nil || p.refused {
		return !p.refused, nil
	}
	if p.areas, err = p.shares.open(ctx, p.table, passAreas*passArea); err != nil {
		return false, err
	}
	if p.areas == nil {
		p.refused = true
		return false, nil
	}
	p.pinned, p.to = map[devices.Device]struct{}{}, nil
	for r := range p.fabric.Size() {
		p.to = append(p.to, plan.Rank(r))
	}
	for i := range p.moved {
		p.moved[i] = make(chan error, 1)
	}
	return true, nil
}

// pin locks our areas for the device of some memory.
func (p *passPath) pin(m *memory) {
	if !m.staged || m.held.Source().Device.Mem == nil {
		return
	}
	d := m.held.Source().Device.Mem.Device()
	if _, done := p.pinned[d]; done {
		return
	}
	unpin, _ := devices.PinHost(d, p.areas.ranks[p.fabric.Rank()])
	p.pinned[d] = struct{}{}
	p.unpin = append(p.unpin, unpin)
}

// close gives the areas back.
func (p *passPath) close(ctx context.Context) error {
	for _, unpin := range p.unpin {
		unpin()
	}
	p.unpin, p.pinned = nil, nil
	if p.areas == nil {
		return nil
	}
	err := p.areas.release(ctx)
	p.areas = nil
	return err
}

// do does a call through the areas. Ok is false, at all ranks, where there
// are none.
func (p *passPath) do(ctx context.Context, r *running) (ok bool, err error) {
	if ok, err = p.open(ctx, r.apart); !ok {
		return false, err
	}
	p.pin(&r.source)
	p.pin(&r.result)
	total := r.total()
	p.size = min(max((total/8+passLeast-1)/passLeast*passLeast, passLeast), passArea)
	segments := int((total + p.size - 1) / p.size)
	err = p.passAll(ctx, r, segments)
	for i := range passAreas {
		err = errors.Join(err, p.passed(i))
	}
	if err == nil {
		// A device that fails with the last segment does so for all ranks.
		err = p.meet.sync(ctx, passStep)
	}
	r.report.note(counters{}, pathPassed)
	return true, err
}

// passAll passes all segments. What is still under way is in our own areas.
func (p *passPath) passAll(ctx context.Context, r *running, segments int) error {
	for k := range min(passAreas-1, segments) {
		p.load(ctx, r, k)
	}
	for k := range segments {
		if err := p.passed(k); err != nil {
			return err
		}
		if err := p.meet.sync(ctx, passStep); err != nil {
			return err
		}
		if err := p.combine(r, k); err != nil {
			return err
		}
		if err := p.meet.sync(ctx, passStep); err != nil {
			return err
		}
		p.store(ctx, r, k)
		if next := k + passAreas - 1; next < segments {
			// The area is that of the segment before this one.
			if err := p.passed(next); err != nil {
				return err
			}
			p.load(ctx, r, next)
		}
	}
	return nil
}

// passed waits until the area of a segment is not being copied.
func (p *passPath) passed(k int) error {
	i := k % passAreas
	if !p.away[i] {
		return nil
	}
	p.away[i] = false
	p.watch.advance()
	return <-p.moved[i]
}

// segment returns the beginning of segment k, and its length.
func (p *passPath) segment(r *running, k int) (off, n uint64) {
	off = uint64(k) * p.size
	return off, min(p.size, r.total()-off)
}

// area is the area of a rank that segment k is in.
func (p *passPath) area(of plan.Rank, k int, n uint64) []byte {
	at := uint64(k%passAreas) * passArea
	return p.areas.ranks[of][at : at+n : at+n]
}

// load begins to put our source of segment k into our area.
func (p *passPath) load(ctx context.Context, r *running, k int) {
	if r.task.Kind == plan.Broadcast && p.fabric.Rank() != r.task.Root {
		return
	}
	off, n := p.segment(r, k)
	mem := p.area(p.fabric.Rank(), k, n)
	if !r.source.staged {
		copy(mem, r.source.bytes[off:])
		return
	}
	v := r.source.view
	p.copyAway(k, p.alone(r), func() error { return readView(ctx, v, devices.Offset(off), mem) })
}

// store begins to put what is in our area into our result of segment k.
func (p *passPath) store(ctx context.Context, r *running, k int) {
	if (r.task.Kind == plan.Broadcast) == (p.fabric.Rank() == r.task.Root) && r.task.Kind != plan.AllReduce {
		// A root has what it gives, and the others get nothing of a Reduce.
		return
	}
	off, n := p.segment(r, k)
	mem := p.area(p.fabric.Rank(), k, n)
	if !r.result.staged {
		copy(r.result.bytes[off:], mem)
		return
	}
	v := r.result.view
	p.copyAway(k, p.alone(r), func() error { return writeView(ctx, v, devices.Offset(off), mem) })
}

// alone says that a call is one segment.
func (p *passPath) alone(r *running) bool { return r.total() <= p.size }

// copyAway copies an area while the ranks go on with others.
func (p *passPath) copyAway(k int, alone bool, do func() error) {
	i := k % passAreas
	done := p.moved[i]
	p.away[i] = true
	if alone {
		done <- do() // there is nothing to do meanwhile
		return
	}
	go func() { done <- do() }()
}

// combine does our share of segment k: in the areas of all, which have all
// sources.
func (p *passPath) combine(r *running, k int) error {
	t := &r.task
	_, n := p.segment(r, k)
	if t.Kind == plan.Broadcast {
		if p.fabric.Rank() != t.Root {
			copy(p.area(p.fabric.Rank(), k, n), p.area(t.Root, k, n))
		}
		return nil
	}
	for i := range p.folder.peers {
		a := p.area(plan.Rank(i), k, n)
		p.folder.peers[i] = [4][]byte{plan.Source: a, plan.Result: a}
	}
	share := (n/uint64(t.Ranks) + foldAlign) / foldAlign * foldAlign
	off := min(share*uint64(p.fabric.Rank()), n)
	part := span{off: off, len: min(share, n-off)}
	if part.len == 0 {
		return nil
	}
	s := step{action: plan.Fold, to: p.to}
	s.block, s.from = part, part
	s.block.buffer, s.from.buffer = plan.Result, plan.Source
	if t.Kind == plan.Reduce {
		s.to = []plan.Rank{t.Root}
	}
	if err := p.folder.fold(t, &s, 0, part.len); err != nil {
		return fmt.Errorf("combine segment %d: %w", k, err)
	}
	return nil
}

// foldAlign keeps two ranks from writing to one cache line.
const foldAlign = 128
