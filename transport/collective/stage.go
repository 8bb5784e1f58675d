package collective

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// ready is up to where a step can go on from a byte on, and not further than to:
// its pages are here.
func (l *loop) ready(i int, from, to uint64) uint64 {
	pg := l.pager
	if pg.plan == nil || to <= from {
		return to
	}
	s := &l.prog.steps[i]
	for _, x := range s.reads {
		if pg.plan.stages(x) {
			to = min(to, pg.reach(x, from, false))
		}
	}
	if pg.plan.stages(s.write) {
		to = min(to, pg.reach(s.write, from, true))
	}
	return to
}

// stage takes what was copied, and has copied what the steps need next:
//
//	load  ──> pages that a step waits for, then those that one comes to
//	store <── pages that nobody writes any more, and others where there is no room
func (l *loop) stage(ctx context.Context, p *phase) error {
	pg := l.pager
	if pg.plan == nil {
		return nil
	}
	if err := l.land(); err != nil {
		return err
	}
	l.mark(p)
	full := false
	for _, x := range pg.faults {
		k := pg.room(false)
		if k < 0 {
			full = true
			continue
		}
		if err := l.bring(ctx, k, x); err != nil {
			return err
		}
	}
	l.storeAll(ctx, full)
	for _, x := range pg.soon {
		if k := pg.room(true); k >= 0 {
			if err := l.bring(ctx, k, x); err != nil {
				return err
			}
		}
	}
	pg.turn++
	pg.faults, pg.soon = pg.faults[:0], pg.soon[:0]
	return nil
}

// land notes the pages that were copied.
func (l *loop) land() error {
	pg := l.pager
	for pg.busy() > 0 {
		select {
		case r := <-pg.results:
			pg.landed(r)
			if r.err != nil {
				return r.err
			}
			l.moved = true
			l.count.staged += pg.frames[r.frame].n
		default:
			return nil
		}
	}
	return nil
}

func (pg *pager) landed(r moved) {
	f := &pg.frames[r.frame]
	if f.loading {
		pg.loading--
		f.last = pg.turn
	} else {
		pg.storing--
		pg.dirty--
		f.dirty = false
	}
	f.loading, f.storing = false, false
}

// mark finds the pages that steps are at, and those that they come to next.
func (l *loop) mark(p *phase) {
	for i := range p.lanes {
		e := &l.ends[p.lanes[i].peer]
		l.markNext(p.lanes[i].sends, e.sends)
		l.markNext(p.lanes[i].receive, e.gets)
	}
	l.markNext(p.local, l.local)
}

// markNext marks the pages of the first of some steps that are left.
func (l *loop) markNext(steps []int, at int) {
	if at == len(steps) {
		return
	}
	pg := l.pager
	i := steps[at]
	s := &l.prog.steps[i]
	limit := l.limit(i)
	for _, x := range s.spans() {
		if !pg.plan.stages(x) {
			continue
		}
		begin, n := pg.plan.pageOf(x.buffer, x.off+l.done[i], pg.page)
		if k, here := pg.where[begin]; here {
			pg.frames[k].last = pg.turn
		}
		if end := begin.off + n; end < x.end() && end-x.off < limit {
			l.near(s, x, end-x.off)
		}
	}
	if at+1 < len(steps) {
		next := steps[at+1]
		s = &l.prog.steps[next]
		if l.limit(next) == 0 {
			return
		}
		for _, x := range s.reads {
			l.near(s, x, 0)
		}
	}
}

// near marks a page that a step comes to next, and asks for it if it is read.
func (l *loop) near(s *step, x span, from uint64) {
	pg := l.pager
	if !pg.plan.stages(x) {
		return
	}
	at, n := pg.plan.pageOf(x.buffer, x.off+from, pg.page)
	if k, here := pg.where[at]; here {
		pg.frames[k].near = pg.turn
		return
	}
	if x == s.reads[0] || x == s.reads[1] {
		pg.soon = append(pg.soon, fault{at: at, n: n, load: true})
	}
}

// bring makes a frame that of a page, and has it loaded.
func (l *loop) bring(ctx context.Context, k int, x fault) error {
	pg := l.pager
	if _, here := pg.where[x.at]; here || x.load && pg.loading == flights {
		return nil
	}
	if err := pg.back(ctx, k); err != nil {
		return err
	}
	pg.put(k, x)
	if !x.load {
		l.moved = true
		return nil
	}
	f := &pg.frames[k]
	f.loading = true
	pg.loading++
	v, host := pg.views[x.at.buffer], f.mem[:x.n:x.n]
	l.away(k, func() error { return readView(ctx, v, devices.Offset(x.at.off), host) })
	return nil
}

// storeAll has pages stored that nobody writes any more, and where there is no
// room, one that nobody is at.
func (l *loop) storeAll(ctx context.Context, full bool) {
	pg := l.pager
	for pg.storing < flights && pg.dirty > pg.storing {
		k := l.toStore(full && pg.storing == 0)
		if k < 0 {
			return
		}
		f := &pg.frames[k]
		f.storing = true
		pg.storing++
		v, at, host := pg.views[f.at.buffer], devices.Offset(f.at.off), f.mem[:f.n:f.n]
		l.away(k, func() error { return writeView(ctx, v, at, host) })
	}
}

// toStore is the page to be stored next, -1 for none.
func (l *loop) toStore(full bool) int {
	pg := l.pager
	best, final := -1, false
	for k := range pg.frames {
		f := &pg.frames[k]
		if !f.dirty || f.storing {
			continue
		}
		over := l.final(f)
		if !over && (!full || f.last == pg.turn) || final && !over {
			continue
		}
		if best < 0 || over && !final || f.last < pg.frames[best].last {
			best, final = k, over
		}
	}
	return best
}

// final says whether nobody writes a page any more.
func (l *loop) final(f *pageFrame) bool {
	p := l.pager.plan
	i := p.last[f.at.buffer][p.area(f.at.buffer, f.at.off)]
	return l.prog.steps[i].write.off+l.done[i] >= f.at.off+f.n
}

// away copies a page while the loop goes on.
func (l *loop) away(k int, do func() error) {
	results, f := l.pager.results, l.fabric
	l.pager.flying.Go(func() {
		results <- moved{frame: k, err: do()}
		f.Interrupt()
	})
}

// settle waits until no page is on its way, and nobody interrupts us any more.
func (l *loop) settle() {
	defer l.pager.flying.Wait()
	for l.pager.busy() > 0 {
		l.pager.landed(<-l.pager.results)
	}
}

// readView copies the bytes of a view from off on, whatever memory they are.
func readView(ctx context.Context, v domain.View, off devices.Offset, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if err := v.Buffer().Load(ctx, transport.HostSpan(p), v.Offset()+off); err != nil {
		return fmt.Errorf("read %d bytes of a source: %w", len(p), err)
	}
	return nil
}

// writeView sets the bytes of a view from off on.
func writeView(ctx context.Context, v domain.View, off devices.Offset, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if err := v.Buffer().Store(ctx, v.Offset()+off, transport.HostSpan(p)); err != nil {
		return fmt.Errorf("write %d bytes of a result: %w", len(p), err)
	}
	return nil
}
