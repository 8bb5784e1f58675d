package collective

import (
	"context"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// stager moves pages between the devices and the pager while the steps of a program run: it
// reads from progress which pages they need next. It copies in goroutines of its own, which
// interrupt the fabric when they end, so that the executor wakes up. All methods are called
// by the executor's goroutine; Group.mu guards the fields.
type stager struct {
	fabric fabric.Fabric
	pager  *pager
	at     *progress
	// views are the staged buffers of the call.
	views [4]domain.View
	// moved reports that this turn has made progress, and staged counts the bytes copied
	// for the call.
	moved   bool
	staged  uint64
	results chan pageCopy
	// flying counts the goroutines that copy pages.
	flying sync.WaitGroup
}

func newStager(f fabric.Fabric, at *progress, o *Options) *stager {
	return &stager{fabric: f, pager: newPager(o), at: at, results: make(chan pageCopy, 2*flights)}
}

// begin prepares the stager for a program and its staged views.
//
// Preconditions: no page is being copied.
func (st *stager) begin(p *paging, views [4]domain.View) {
	st.views, st.staged = views, 0
	st.pager.begin(p, &st.views)
}

// ready returns the offset up to which a step can proceed from offset from, at most to: as
// far as its pages are resident.
func (st *stager) ready(i int, from, to uint64) uint64 {
	pg := st.pager
	if pg.plan == nil || to <= from {
		return to
	}
	s := &st.at.prog.steps[i]
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

// turn collects copies that have ended, and starts those that the steps need next. It
// reports whether there was progress:
//
//	load  ──> pages that a step waits for, then those needed next
//	store <── pages that no step will write again, and others if there is no room
func (st *stager) turn(ctx context.Context, p *phase) (bool, error) {
	pg := st.pager
	if pg.plan == nil {
		return false, nil
	}
	st.moved = false
	if err := st.land(); err != nil {
		return st.moved, err
	}
	st.mark(p)
	full := false
	for _, x := range pg.faults {
		k := pg.room(false)
		if k < 0 {
			full = true
			continue
		}
		if err := st.bring(ctx, k, x); err != nil {
			return st.moved, err
		}
	}
	st.storeAll(ctx, full)
	for _, x := range pg.soon {
		if k := pg.room(true); k >= 0 {
			if err := st.bring(ctx, k, x); err != nil {
				return st.moved, err
			}
		}
	}
	pg.turn++
	pg.faults, pg.soon = pg.faults[:0], pg.soon[:0]
	return st.moved, nil
}

// land collects the copies that have ended.
func (st *stager) land() error {
	pg := st.pager
	for pg.busy() > 0 {
		select {
		case r := <-st.results:
			pg.landed(r)
			if r.err != nil {
				return r.err
			}
			st.moved = true
			st.staged += pg.frames[r.frame].n
		default:
			return nil
		}
	}
	return nil
}

// mark marks the pages that steps use, and those that they need next.
func (st *stager) mark(p *phase) {
	for i := range p.lanes {
		at := st.at.lanes[p.lanes[i].peer]
		st.markNext(p.lanes[i].sends, at.sends)
		st.markNext(p.lanes[i].receive, at.gets)
	}
	st.markNext(p.local, st.at.local)
}

// markNext marks the pages of the next of some steps.
func (st *stager) markNext(steps []int, at int) {
	if at == len(steps) {
		return
	}
	pg := st.pager
	i := steps[at]
	s := &st.at.prog.steps[i]
	limit := st.at.limit(i)
	for _, x := range s.spans() {
		if !pg.plan.stages(x) {
			continue
		}
		begin, n := pg.plan.pageOf(x.Buffer, x.Off+st.at.done[i], pg.page)
		if k, here := pg.where[begin]; here {
			pg.frames[k].last = pg.turn
		}
		if end := begin.off + n; end < x.End() && end-x.Off < limit {
			st.near(s, x, end-x.Off)
		}
	}
	if at+1 < len(steps) {
		next := steps[at+1]
		s = &st.at.prog.steps[next]
		if st.at.limit(next) == 0 {
			return
		}
		for _, x := range s.reads {
			st.near(s, x, 0)
		}
	}
}

// near marks a page that a step needs next, and requests it if the step reads it.
func (st *stager) near(s *step, x span, from uint64) {
	pg := st.pager
	if !pg.plan.stages(x) {
		return
	}
	at, n := pg.plan.pageOf(x.Buffer, x.Off+from, pg.page)
	if k, here := pg.where[at]; here {
		pg.frames[k].near = pg.turn
		return
	}
	if x == s.reads[0] || x == s.reads[1] {
		pg.soon = append(pg.soon, fault{at: at, n: n, load: true})
	}
}

// bring assigns a frame to a page, and starts to load it.
func (st *stager) bring(ctx context.Context, k int, x fault) error {
	pg := st.pager
	if _, here := pg.where[x.at]; here || x.load && pg.loading == flights {
		return nil
	}
	if err := pg.back(ctx, k); err != nil {
		return err
	}
	pg.put(k, x)
	if !x.load {
		st.moved = true
		return nil
	}
	f := &pg.frames[k]
	f.loading = true
	pg.loading++
	v, host := st.views[x.at.buffer], f.mem[:x.n:x.n]
	st.away(k, func() error { return readView(ctx, v, devices.Offset(x.at.off), host) })
	return nil
}

// storeAll starts to store pages that no step will write again, and if there is no room,
// one that no step is using.
func (st *stager) storeAll(ctx context.Context, full bool) {
	pg := st.pager
	for pg.storing < flights && pg.dirty > pg.storing {
		k := st.toStore(full && pg.storing == 0)
		if k < 0 {
			return
		}
		f := &pg.frames[k]
		f.storing = true
		pg.storing++
		v, at, host := st.views[f.at.buffer], devices.Offset(f.at.off), f.mem[:f.n:f.n]
		st.away(k, func() error { return writeView(ctx, v, at, host) })
	}
}

// toStore returns the frame of the next page to store, or -1.
func (st *stager) toStore(full bool) int {
	pg := st.pager
	best, final := -1, false
	for k := range pg.frames {
		f := &pg.frames[k]
		if !f.dirty || f.storing {
			continue
		}
		over := st.final(f)
		if !over && (!full || f.last == pg.turn) || final && !over {
			continue
		}
		if best < 0 || over && !final || f.last < pg.frames[best].last {
			best, final = k, over
		}
	}
	return best
}

// final reports whether no step will write a page again.
func (st *stager) final(f *pageFrame) bool {
	p := st.pager.plan
	i := p.last[f.at.buffer][p.area(f.at.buffer, f.at.off)]
	return st.at.prog.steps[i].write.Off+st.at.done[i] >= f.at.off+f.n
}

// away copies a page while the steps run.
func (st *stager) away(k int, do func() error) {
	results, f := st.results, st.fabric
	st.flying.Go(func() {
		results <- pageCopy{frame: k, err: do()}
		f.Interrupt()
	})
}

// settle waits until no page is being copied, and no goroutine will interrupt the fabric.
func (st *stager) settle() {
	defer st.flying.Wait()
	for st.pager.busy() > 0 {
		st.pager.landed(<-st.results)
	}
}
