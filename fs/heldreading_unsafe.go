package fs

import (
	"context"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// heldStretches is the number of ranges that outlive this process, of those that a reader of a file of publish/ has had.
const heldStretches = 31

// The bits of heldSlot.reading.
const (
	// reads is set for a file that was in publish/ when it was opened.
	reads = 1 << iota
	// receives is set if the reader is about to receive the file, or has.
	receives
	// sole is set if the kernel may have pages of the file for the reader: it has the file alone.
	sole
)

// heldReading has the ranges that a reader has had. It takes the place of a heldView.
type heldReading struct {
	// current is twice the number of ranges, and one more if they are the second ones. It is stored last, and the others
	// are written meanwhile.
	current uint64
	ranges  [2][heldStretches]objects.Stretch
}

// heldView has room for it.
const _ = unsafe.Sizeof(heldView{}) - unsafe.Sizeof(heldReading{})

func (v *heldView) reading() *heldReading { return (*heldReading)(unsafe.Pointer(v)) }

func (r *heldReading) set(ranges []objects.Stretch) {
	half := load(&r.current)&1 ^ 1
	n := copy(r.ranges[half][:], ranges)
	store(&r.current, uint64(n)<<1|half)
}

// all returns the ranges. Memory that was damaged has others, not more.
func (r *heldReading) all() []objects.Stretch {
	current := load(&r.current)
	return r.ranges[current&1][:min(current>>1, heldStretches)]
}

// heldProgress keeps how far a file of publish/ is read. It implements objects.Progress.
type heldProgress struct {
	state *heldState
	id    uint64
}

func (p heldProgress) Delivered(ranges []objects.Stretch) {
	p.state.change(p.id, func(_ *heldSlot, r *heldReading) { r.set(ranges) })
}

func (p heldProgress) Receives(yes bool) {
	p.state.change(p.id, func(slot *heldSlot, _ *heldReading) {
		bits := slot.reading &^ receives
		if yes {
			bits |= receives
		}
		store(&slot.reading, bits)
	})
}

// isSole records that a reader has its file alone.
func (s *heldState) isSole(id uint64) {
	s.change(id, func(slot *heldSlot, _ *heldReading) { store(&slot.reading, slot.reading|sole) })
}

// change changes how far a file is read, unless it has been closed.
func (s *heldState) change(id uint64, change func(*heldSlot, *heldReading)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.at[heldKey{id, heldFile}]; ok {
		change(&s.slots[i], s.views[i].reading())
	}
}

// read returns how far a file was read.
func (s *heldState) read(id uint64) (r objects.Reading) {
	s.change(id, func(slot *heldSlot, have *heldReading) {
		r.Delivered = append(r.Delivered, have.all()...)
		r.Receives = slot.reading&receives != 0
	})
	return r
}

// readOn opens a file that was open in publish/, which goes on where its reader was.
func (h *holding) readOn(ctx context.Context, slot *heldSlot) fuse.Status {
	f := h.filesystem
	f.fleeting.entered(ctx, metadata.Ino(slot.ino))
	file, err := h.state.read(slot.id).Open(ctx, f.store, metadata.Ino(slot.ino), heldProgress{h.state, slot.id})
	if err != nil {
		return f.errs.inodeStatus(err)
	}
	var out fuse.OpenOut
	status := f.serve(file, slot.flags, &out) //nolint:contextcheck // the file stays open
	if status == fuse.OK {
		h.adopt(slot, out.Fh)
		if slot.reading&sole != 0 {
			f.published.adopt(file.Ino(), slot.id)
		}
	}
	return status
}
