package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// shared is a buffer of each rank that all of them have mapped.
type shared struct {
	// number counts the calls of Share in the group, with those that failed: it is
	// unique, and the same at every rank.
	number uint64
	buffer *region.Buffer
	shared fabric.Shared
	// ranks are the bytes of each.
	ranks [][]byte
}

// Share lets the other ranks of this host use a buffer in place. All ranks call it in
// the same order, each with a buffer of its own. mapped reports whether they can; a
// fabric that cannot map memory is no error.
func (g *Group) Share(ctx context.Context, b *region.Buffer) (mapped bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() {
		return false, ErrClosed
	}
	if !g.direct() {
		return false, nil
	}
	g.shareCount++
	s, err := g.share(ctx, b)
	if err != nil {
		if errors.Is(err, fabric.ErrUnmapped) {
			err = nil
		}
		return false, err
	}
	s.number = g.shareCount
	g.shares = append(g.shares, s)
	return true, nil
}

// Unshare undoes Share, so that the buffer can be closed before the group. All ranks
// call it in the same order, between the same calls. It ignores a buffer that is not
// shared.
func (g *Group) Unshare(b *region.Buffer) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.shares, func(s *shared) bool { return s.buffer == b })
	if i < 0 {
		return nil
	}
	s := g.shares[i]
	g.shares = slices.Delete(g.shares, i, i+1)
	return s.shared.Close()
}

// direct says whether all ranks are on one host, and can map memory there.
func (g *Group) direct() bool {
	if !g.fabric.Mapped() {
		return false
	}
	nodes := g.fabric.Nodes()
	for _, n := range nodes {
		if n != nodes[0] {
			return false
		}
	}
	return true
}

func (g *Group) share(ctx context.Context, b *region.Buffer) (*shared, error) {
	s := &shared{buffer: b}
	err := g.calm(ctx)
	if err != nil {
		return nil, err
	}
	if s.shared, err = g.fabric.Share(ctx, b); err != nil {
		return nil, fmt.Errorf("share %v: %w", b.Size(), err)
	}
	for r := range g.Size() {
		s.ranks = append(s.ranks, s.shared.Bytes(plan.Rank(r)))
	}
	return s, nil
}

// calm ends the interruptions of waits that are over, such as by a page that was
// copied: the ranks would not find each other.
//
// Errors: ErrClosed, the interruption that counts; the context's.
func (g *Group) calm(ctx context.Context) error {
	g.fabric.Interrupt()
	if err := g.fabric.Park(ctx, nil); err != nil && !errors.Is(err, fabric.ErrInterrupted) {
		return err
	}
	if err := g.guard.watch.stop(); errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

// A window has two slots, used in turn: who is a call ahead writes to the other
// one. A slot begins with a descriptor:
//
//	0   16  header, as on a link
//	16  8   number of the share of the source, from 1; 0 is none
//	24  8   where the source begins in it
//	32  8   share of the result, and
//	40  8   where it begins
//	48  1   1 for memory that the host does not see, and twice passing.state
const (
	describing = 64
	// windowData is the bytes of a source that a slot holds.
	windowData = 16 << 10
	slotSize   = describing + windowData
	// windowReads bounds what one rank reads of all slots, as each reads all.
	windowReads = 64 << 10
)

// openWindow shares the group's own memory.
//
// +checklocks:g.mu
func (g *Group) openWindow(ctx context.Context) error {
	if !g.direct() {
		return nil
	}
	b, err := g.own.table.Alloc(2 * slotSize)
	if err != nil {
		return err
	}
	if g.window, err = g.share(ctx, b); err != nil {
		err = errors.Join(err, b.Close(context.WithoutCancel(ctx)))
	}
	if errors.Is(err, fabric.ErrUnmapped) {
		return nil
	}
	return err
}

// closeMemory gives back what the group has taken.
//
// +checklocks:g.mu
func (g *Group) closeMemory(ctx context.Context) error {
	var errs []error
	for _, s := range g.shares {
		errs = append(errs, s.shared.Close())
	}
	if g.window != nil {
		errs = append(errs, g.window.shared.Close())
		// Ranks of this process have it mapped until they close too.
		last := g.window.buffer
		go func() { _ = last.Close(context.WithoutCancel(ctx)) }()
	}
	g.shares, g.window = nil, nil
	return errors.Join(append(errs, g.pass.close(ctx), g.own.close(ctx), g.loop.pager.close())...)
}

// slot is the slot of a rank for the call of now.
//
// +checklocks:g.mu
func (g *Group) slot(of plan.Rank) []byte {
	at := (g.guard.base & 1) * slotSize
	return g.window.ranks[of][at : at+slotSize]
}

// sync waits until all ranks have come as far.
//
// +checklocks:g.mu
func (g *Group) sync(ctx context.Context) error {
	s, met := g.fabric.Signals(), false
	if !g.setting {
		g.setting = true
		met = s.Meet(g.guard.base + 1)
	}
	for r := 0; !met && r < g.Size(); r++ {
		of := plan.Rank(r)
		for of != g.Rank() && s.Get(of) <= g.guard.base {
			if err := g.await(ctx, s, of, g.guard.base+1, g.loop.phase); err != nil {
				return err
			}
		}
	}
	g.setting = false
	g.guard.base++
	return nil
}

// describe says in our slot what the call is, and where its memory is unless that
// is the slot.
//
// +checklocks:g.mu
func (g *Group) describe(r *running) {
	p := g.slot(g.Rank())
	g.stamp((*[headSize]byte)(p), 0, r.task.Count)
	if r.prepared.window {
		return
	}
	g.locate(p[16:], r.source.view)
	g.locate(p[32:], r.result.view)
	p[48] = 2 * g.pass.state()
	if r.source.staged || r.result.staged {
		p[48]++
	}
}

// locate writes the number of the share that contains a view, and the offset in it.
//
// +checklocks:g.mu
func (g *Group) locate(p []byte, v domain.View) {
	share, at := uint64(0), uint64(0)
	for _, s := range g.shares {
		if off, ok := within(v, s.buffer); ok {
			share, at = s.number, off
			break
		}
	}
	binary.LittleEndian.PutUint64(p, share)
	binary.LittleEndian.PutUint64(p[8:], at)
}

// within says where in a buffer a view is, if it is.
func within(v domain.View, b *region.Buffer) (uint64, bool) {
	switch {
	case v.Size() == 0:
		return 0, false
	case v.Buffer() == b:
		return uint64(v.Offset()), true
	}
	p, all := v.Buffer().Host(v.Offset(), v.Size()), b.Host(0, b.Size())
	if p == nil || all == nil {
		return 0, false
	}
	at, begin := address(p), address(all)
	return at - begin, at >= begin && at+uint64(len(p)) <= begin+uint64(len(all))
}

// read returns the n bytes that a rank has described. ok is false for memory that is
// not mapped.
//
// +checklocks:g.mu
func (g *Group) read(of plan.Rank, p []byte, n uint64) (bytes []byte, ok bool, err error) {
	if n == 0 {
		return nil, true, nil
	}
	share, at := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
	if share == 0 {
		return nil, false, nil
	}
	i := slices.IndexFunc(g.shares, func(s *shared) bool { return s.number == share })
	if i < 0 {
		return nil, false, fmt.Errorf("%w: rank %d uses what it has shared as the %dth; rank %d has no part in that", ErrInconsistent, of, share, g.Rank())
	}
	all := devices.Range{Off: devices.Offset(at), Len: devices.Size(n)}
	whole := g.shares[i].ranks[of]
	if !all.Within(devices.Size(len(whole))) {
		return nil, false, fmt.Errorf("%w: rank %d names %v of a buffer of %d bytes", ErrInconsistent, of, all, len(whole))
	}
	return whole[at : at+n : at+n], true, nil
}

// meet publishes our descriptor, and waits for those of all others.
//
// +checklocks:g.mu
func (g *Group) meet(ctx context.Context, r *running) error {
	if !g.setting {
		g.describe(r)
	}
	return g.sync(ctx)
}

// described is the slot that a rank has described the call in which all have
// met.
//
// +checklocks:g.mu
func (g *Group) described(r *running, of plan.Rank) ([]byte, error) {
	at := (g.guard.base - 1) & 1 * slotSize
	p := g.window.ranks[of][at : at+slotSize]
	if of == g.Rank() {
		return p, nil
	}
	return p, g.verifyHead((*[headSize]byte)(p), of, 0, r.task.Count)
}

// doDirect does a call in the memory of all ranks. mapped is false, at all of
// them, where that of one is not mapped.
//
// +checklocks:g.mu
func (g *Group) doDirect(ctx context.Context, r *running, w *way) (mapped bool, err error) {
	l, size := g.loop, w.prog.element
	if !r.resumed {
		l.begin(&r.task, w.prog)
		l.memory = [4][]byte{plan.Source: r.source.bytes, plan.Result: r.result.bytes}
	}
	if l.phase == 0 {
		if err = g.meet(ctx, r); err != nil {
			return false, err
		}
		l.phase = 1
		if mapped, err = g.borrow(r, size); !mapped {
			return false, err
		}
	}
	err = l.all(ctx)
	r.report.note(l.count, "direct")
	return true, err
}

// borrow finds the memory of all ranks.
//
// +checklocks:g.mu
func (g *Group) borrow(r *running, size uint64) (bool, error) {
	mapped := true
	r.unseen, r.apart = false, false
	state := g.pass.state()
	for i := range g.loop.peers {
		of := plan.Rank(i)
		p, err := g.described(r, of)
		if err != nil {
			return false, err
		}
		s, one, err := g.read(of, p[16:], r.task.SourceLen(of)*size)
		if err != nil {
			return false, err
		}
		d, two, err := g.read(of, p[32:], r.task.ResultLen(of)*size)
		if err != nil {
			return false, err
		}
		g.loop.peers[i] = [4][]byte{plan.Source: s, plan.Result: d}
		mapped = mapped && one && two
		r.unseen = r.unseen || p[48]%2 != 0
		r.apart = r.apart || p[48]/2 != state
	}
	return mapped, nil
}

// fallBack has a call be done over the links because memory is not mapped.
//
// +checklocks:g.mu
func (g *Group) fallBack(r *running) error {
	p := r.prepared
	if p.stream == nil {
		w, err := g.streamWay(&r.task, p.staged)
		if err != nil {
			return err
		}
		p.stream = w
	}
	w := p.stream
	r.plan, r.report.Algorithm, r.report.Because, r.report.Predicted = w.plan, w.plan.Algorithm, w.because, w.predicted
	return nil
}
