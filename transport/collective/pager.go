package collective

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// smallestPage is the least that a device is asked to copy where there is more:
// a program with steps at so many pages at once that they would not all be here.
const smallestPage = 4 << 10

// pager has the pages of staged buffers that are used: the others are where they
// belong, on the device. Its memory is some pinned slots, whatever the size of a
// call.
//
// A page that is here is whole, but for one that a step is writing: that one is
// whole up to where the step is. So no page is put away that a step is at, and
// there are more frames than steps can be at pages. What was put away is loaded
// again when it is needed.
type pager struct {
	slots *transport.SlotPool
	slot  uint64
	most  int
	taken []*transport.Slot

	// What follows is of the call of now. Plan is nil where nothing is staged.
	plan  *paging
	views *[4]domain.View
	page  uint64
	// frames is room for pages; where says which ones are here.
	frames []pageFrame
	where  map[pageAt]int
	// faults are pages that steps wait for, and soon those that they come to
	// next.
	faults, soon []fault
	// turn counts the looks at all steps, from 1.
	turn uint64
	// dirty counts the pages that are not on the device as they are here; loading and
	// storing count those that are on their way.
	dirty, loading, storing int
}

// pageFrame is room for a page.
type pageFrame struct {
	// mem is nil until it is used.
	mem []byte
	at  pageAt
	// n is the bytes of the page; 0 is none.
	n uint64
	// dirty says that it has to be stored, and loading and storing that it is on
	// its way.
	dirty, loading, storing bool
	// last is the turn in which a step was at it, or came to it next.
	last, near uint64
}

// fault is a page that is not here.
type fault struct {
	at pageAt
	n  uint64
	// load says that its bytes are read before they are written.
	load bool
}

// pageCopy tells that the copy of a page has ended.
type pageCopy struct {
	frame int
	err   error
}

// flights is the number of pages that are on their way at once, in each direction: while
// one is copied, the device knows of the next.
const flights = 2

func newPager(o *Options) *pager {
	return &pager{
		slots: transport.NewSlotPool(o.StageSlot * devices.Size(o.StageSlots)), slot: uint64(o.StageSlot), most: o.StageSlots,
		where: map[pageAt]int{},
	}
}

// begin makes the pager ready for a program, whose staged buffers are views.
//
// Preconditions: nothing is on its way.
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

// memory is that of a frame; nil where its slot is not taken yet.
func (pg *pager) memory(k int) []byte {
	per := int(pg.slot / pg.page)
	if k/per >= len(pg.taken) {
		return nil
	}
	off := uint64(k%per) * pg.page
	return pg.taken[k/per].Bytes()[off : off+pg.page : off+pg.page]
}

// pin locks a slot for the devices of the call.
func (pg *pager) pin(s *transport.Slot) {
	for b, v := range pg.views {
		if pg.plan.staged[b] && v.Buffer() != nil {
			v.Buffer().PinSlot(s)
		}
	}
}

// back makes sure that a frame has memory.
func (pg *pager) back(ctx context.Context, k int) error {
	for pg.frames[k].mem == nil {
		s, err := pg.slots.Get(ctx, devices.Size(pg.slot))
		if err != nil {
			return fmt.Errorf("memory to stage a collective: %w", err)
		}
		pg.pin(s)
		pg.taken = append(pg.taken, s)
		for i := range pg.frames {
			pg.frames[i].mem = pg.memory(i)
		}
	}
	return nil
}

// close gives all memory back.
//
// Preconditions: nothing is on its way.
func (pg *pager) close() error {
	for _, s := range pg.taken {
		s.Release()
	}
	pg.taken, pg.plan, pg.frames = nil, nil, nil
	return pg.slots.Close()
}

// busy returns the number of pages that are on their way.
func (pg *pager) busy() int { return pg.loading + pg.storing }

// stages says whether a buffer is not in memory as a whole.
func (pg *pager) stages(b plan.Buffer) bool { return pg.plan != nil && pg.plan.staged[b] }

// reach is up to where a span may be used from a byte on, counted from its begin:
// to the end of the page, 0 while that is not here.
func (pg *pager) reach(x span, from uint64, write bool) uint64 {
	at, n := pg.plan.pageOf(x.buffer, x.off+from, pg.page)
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
	return at.off + n - x.off
}

// miss notes a page that a step waits for. What is read and written is loaded:
// reading is asked for first.
func (pg *pager) miss(f fault) {
	for i := range pg.faults {
		if pg.faults[i].at == f.at {
			return
		}
	}
	pg.faults = append(pg.faults, f)
}

// bytes is n bytes of a span from off on.
//
// Preconditions: reach has said that they are here.
func (pg *pager) bytes(x span, off, n uint64) []byte {
	at, _ := pg.plan.pageOf(x.buffer, x.off+off, pg.page)
	begin := x.off + off - at.off
	return pg.frames[pg.where[at]].mem[begin : begin+n : begin+n]
}

// room is a frame for a page: an empty one, or that of the page which was not
// used for the longest time. Ahead is for a page that is not needed yet: those
// that are, stay. -1 is none.
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

// put makes a frame that of another page.
func (pg *pager) put(k int, x fault) {
	f := &pg.frames[k]
	if f.n > 0 {
		delete(pg.where, f.at)
	}
	*f = pageFrame{mem: f.mem, at: x.at, n: x.n, last: pg.turn, near: pg.turn}
	pg.where[x.at] = k
}

// landed notes a page that was copied.
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
