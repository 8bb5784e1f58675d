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

// Device memory that the host can't access, of ranks that have mapped each other's memory, is
// passed through areas that all of them have mapped: the ranks combine it as they do shared
// memory, one segment at a time.
//
//	load segment k+3 ─┐
//	      rendezvous, combine our slice of segment k in the areas of all, rendezvous
//	store segment k  ─┘
const (
	// passArea is the maximum size of a segment, in bytes: the segments of two ranks stay
	// in the cache. Smaller calls use smaller segments, down to passLeast, so that several
	// are in progress.
	passArea  = 512 << 10
	passLeast = 256 << 10
	// passAreas is the number of segments in progress.
	passAreas = 4
)

// pathPassed is the Report.Path of calls through the areas.
const pathPassed = "passed"

// passStep is the step that the watchdog reports for such a call: the one after the
// rendezvous of a direct call.
const passStep = 1

// passPath executes calls of ranks on one host through areas of the group's own memory, if
// the host can't access the memory of some of them. It belongs to one group; Group.mu
// guards it.
type passPath struct {
	fabric fabric.Fabric
	table  *region.Table
	shares *shares
	sync   *hostSync
	watch  *watchdog
	folder *folder

	// areas are the areas of all ranks, contiguous for each rank; nil until a call needs
	// them. refused reports that they can't be mapped.
	areas   *shared
	refused bool
	// pinned are the devices for which our areas are pinned, and unpin undoes that.
	pinned map[devices.Device]struct{}
	unpin  []func()
	// size is the size, in bytes, of the current segments, the same at every rank.
	size uint64
	// to lists all ranks.
	to []plan.Rank
	// moved receives the result of the load or store of an area, and away reports that one
	// is in progress.
	moved [passAreas]chan error
	away  [passAreas]bool
}

// passes reports whether a call can use the areas: its kind has no parts.
func (r *running) passes() bool {
	return r.task.Count > 0 && (r.task.Kind == plan.AllReduce || r.task.Kind.Rooted())
}

// state encodes the state of our areas for the other ranks: 1 if we have them, 2 if we
// can't.
func (p *passPath) state() byte {
	switch {
	case p.refused:
		return 2
	case p.areas != nil:
		return 1
	}
	return 0
}

// open makes the areas, if possible. All ranks call it. If their states differ, because a
// rank has given up in open, all start again.
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

// pin pins our areas for the device of some memory.
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

// do executes a call through the areas. ok is false, at all ranks, if there are no areas.
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
		// A device error in the last segment thus fails the call at all ranks.
		err = p.sync.sync(ctx, passStep)
	}
	r.report.note(counters{}, pathPassed)
	return true, err
}

// passAll passes all segments. Copies may still be in progress at its return, in our own
// areas only.
func (p *passPath) passAll(ctx context.Context, r *running, segments int) error {
	for k := range min(passAreas-1, segments) {
		p.load(ctx, r, k)
	}
	for k := range segments {
		if err := p.passed(k); err != nil {
			return err
		}
		if err := p.sync.sync(ctx, passStep); err != nil {
			return err
		}
		if err := p.combine(r, k); err != nil {
			return err
		}
		if err := p.sync.sync(ctx, passStep); err != nil {
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
	p.watch.moved.Add(1)
	return <-p.moved[i]
}

// segment returns the beginning of segment k, and its length.
func (p *passPath) segment(r *running, k int) (off, n uint64) {
	off = uint64(k) * p.size
	return off, min(p.size, r.total()-off)
}

// area returns the area of a rank that holds segment k.
func (p *passPath) area(of plan.Rank, k int, n uint64) []byte {
	at := uint64(k%passAreas) * passArea
	return p.areas.ranks[of][at : at+n : at+n]
}

// load starts to copy segment k of our source into our area.
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
	p.copyAway(k, r, func() error { return readView(ctx, v, devices.Offset(off), mem) })
}

// store starts to copy our area into segment k of our result.
func (p *passPath) store(ctx context.Context, r *running, k int) {
	if (r.task.Kind == plan.Broadcast) == (p.fabric.Rank() == r.task.Root) && r.task.Kind != plan.AllReduce {
		// A root has its own elements, and the other ranks get no result from a Reduce.
		return
	}
	off, n := p.segment(r, k)
	mem := p.area(p.fabric.Rank(), k, n)
	if !r.result.staged {
		copy(r.result.bytes[off:], mem)
		return
	}
	v := r.result.view
	p.copyAway(k, r, func() error { return writeView(ctx, v, devices.Offset(off), mem) })
}

// copyAway copies an area while the ranks continue with others.
func (p *passPath) copyAway(k int, r *running, do func() error) {
	i := k % passAreas
	done := p.moved[i]
	p.away[i] = true
	if r.total() <= p.size {
		done <- do() // there is no other segment to continue with
		return
	}
	go func() { done <- do() }()
}

// combine computes our share of segment k in the areas of all ranks, which hold all
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
	part := plan.Range{Off: off, Len: min(share, n-off)}
	if part.Len == 0 {
		return nil
	}
	s := plan.Step{Action: plan.Fold, Block: span{Buffer: plan.Result, Range: part}, From: span{Buffer: plan.Source, Range: part}, To: p.to}
	if t.Kind == plan.Reduce {
		s.To = []plan.Rank{t.Root}
	}
	if err := p.folder.fold(t, &s, 0, part.Len); err != nil {
		return fmt.Errorf("combine segment %d: %w", k, err)
	}
	return nil
}

// foldAlign keeps two ranks from writing to one cache line.
const foldAlign = 128
