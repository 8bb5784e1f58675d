package collective

import (
	"context"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// smallestPage bounds how far pages are divided, in bytes, for programs that use so many
// pages at once that full slots would not suffice.
const smallestPage = 4 << 10

// pager holds the pages of staged buffers that are in use; the others are on the device
// only. Its memory is a fixed number of pinned slots, whatever the size of a call.
//
// A resident page is complete, except for one that a step is writing: that one is complete
// up to the position of the step. Therefore a page in use by a step is never evicted, and
// there are more frames than steps can use pages. An evicted page is loaded again when it
// is needed.
type pager struct {
	slots *transport.SlotPool
	slot  uint64
	most  int
	taken []*transport.Slot

	// The following belongs to the current call. plan is nil if nothing is staged.
	plan  *paging
	views *[4]domain.View
	page  uint64
	// frames hold pages; where maps each resident page to its frame.
	frames []pageFrame
	where  map[pageAt]int
	// faults are pages that steps wait for, and soon those that they need next.
	faults, soon []fault
	// turn counts the passes over all steps, from 1.
	turn uint64
	// dirty counts the pages that differ from the device; loading and storing count those
	// being copied.
	dirty, loading, storing int
}

// pageFrame is memory for a page.
type pageFrame struct {
	// mem is nil until the frame is used.
	mem []byte
	at  pageAt
	// n is the size of the page in bytes; 0 if the frame is empty.
	n uint64
	// dirty reports that the page must be stored; loading and storing report that it is
	// being copied.
	dirty, loading, storing bool
	// last is the last turn in which a step used the page, near the last in which one was
	// about to.
	last, near uint64
}

// fault is a page that is needed and not resident.
type fault struct {
	at pageAt
	n  uint64
	// load reports that its bytes are read before they are written.
	load bool
}

// pageCopy reports the end of the copy of a page.
type pageCopy struct {
	frame int
	err   error
}

// flights is the number of pages being copied at once in each direction: during one copy
// the device already knows the next.
const flights = 2

func newPager(o *Options) *pager {
	return &pager{
		slots: transport.NewSlotPool(o.StageSlot * devices.Size(o.StageSlots)), slot: uint64(o.StageSlot), most: o.StageSlots,
		where: map[pageAt]int{},
	}
}

// begin prepares the pager for a program, whose staged buffers are views.
//
// Preconditions: no page is being copied.
func (pg *pager) begin(p *paging, views *[4]domain.View) {
	pg.plan, pg.views, pg.dirty = p, views, 0
	if p == nil {
		return
	}
	clear(pg.where)
	pg.faults, pg.soon = pg.faults[:0], pg.soon[:0]
	pg.turn = 1
	pg.page = pg.slot
	count := pg.most
	for count < 2*p.heads+2 && pg.page > smallestPage {
		pg.page, count = pg.page/2, count*2
	}
	pg.frames = append(pg.frames[:0], make([]pageFrame, count)...)
	for _, s := range pg.taken {
		pg.pin(s)
	}
	for i := range pg.frames {
		pg.frames[i].mem = pg.memory(i)
	}
}

// memory returns the memory of a frame; nil if its slot is not allocated yet.
func (pg *pager) memory(k int) []byte {
	per := int(pg.slot / pg.page)
	if k/per >= len(pg.taken) {
		return nil
	}
	off := uint64(k%per) * pg.page
	return pg.taken[k/per].Bytes()[off : off+pg.page : off+pg.page]
}

// pin pins a slot for the devices of the call.
func (pg *pager) pin(s *transport.Slot) {
	for b, v := range pg.views {
		if pg.plan.staged[b] && v.Buffer() != nil {
			v.Buffer().PinSlot(s)
		}
	}
}

// back ensures that a frame has memory.
func (pg *pager) back(ctx context.Context, k int) error {
	for pg.frames[k].mem == nil {
		s, err := pg.slots.Get(ctx, devices.Size(pg.slot))
		if err != nil {
			return fmt.Errorf("allocate staging memory for a collective: %w", err)
		}
		pg.pin(s)
		pg.taken = append(pg.taken, s)
		for i := range pg.frames {
			pg.frames[i].mem = pg.memory(i)
		}
	}
	return nil
}

// close frees all memory.
//
// Preconditions: no page is being copied.
func (pg *pager) close() error {
	for _, s := range pg.taken {
		s.Release()
	}
	pg.taken, pg.plan, pg.frames = nil, nil, nil
	return pg.slots.Close()
}

// busy returns the number of pages being copied.
func (pg *pager) busy() int { return pg.loading + pg.storing }

func (pg *pager) stages(b plan.Buffer) bool { return pg.plan != nil && pg.plan.staged[b] }

// reach returns the offset in a span up to which it may be used, starting at offset from:
// the end of the page, or 0 while the page is not resident.
func (pg *pager) reach(x span, from uint64, write bool) uint64 {
	at, n := pg.plan.pageOf(x.Buffer, x.Off+from, pg.page)
	k, here := pg.where[at]
	if !here {
		pg.miss(fault{at: at, n: n, load: !write})
		return 0
	}
	f := &pg.frames[k]
	if f.loading || write && f.storing {
		return 0
	}
	if write && !f.dirty {
		f.dirty = true
		pg.dirty++
	}
	return at.off + n - x.Off
}

// miss records a page that a step waits for. A page that is both read and written is
// loaded, since the read is requested first.
func (pg *pager) miss(f fault) {
	if !slices.ContainsFunc(pg.faults, func(x fault) bool { return x.at == f.at }) {
		pg.faults = append(pg.faults, f)
	}
}

// bytes returns n bytes of a span, starting at offset off.
//
// Preconditions: reach has returned that they are resident.
func (pg *pager) bytes(x span, off, n uint64) []byte {
	at, _ := pg.plan.pageOf(x.Buffer, x.Off+off, pg.page)
	begin := x.Off + off - at.off
	return pg.frames[pg.where[at]].mem[begin : begin+n : begin+n]
}

// room returns a frame for a page: an empty one, or that of the least recently used page.
// With ahead the page is not needed yet, and pages needed soon stay. It returns -1 if there
// is none.
func (pg *pager) room(ahead bool) int {
	best := -1
	for k := range pg.frames {
		f := &pg.frames[k]
		if f.n == 0 {
			return k
		}
		if f.dirty || f.loading || f.storing || f.last == pg.turn || ahead && f.near == pg.turn {
			continue
		}
		if best < 0 || max(f.last, f.near) < max(pg.frames[best].last, pg.frames[best].near) {
			best = k
		}
	}
	return best
}

// put assigns a frame to another page.
func (pg *pager) put(k int, x fault) {
	f := &pg.frames[k]
	if f.n > 0 {
		delete(pg.where, f.at)
	}
	*f = pageFrame{mem: f.mem, at: x.at, n: x.n, last: pg.turn, near: pg.turn}
	pg.where[x.at] = k
}

// landed records the end of the copy of a page.
func (pg *pager) landed(r pageCopy) {
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
