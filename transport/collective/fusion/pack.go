package fusion

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// packer is the state of the bucket being packed: its first tensor is the one after the
// last that was agreed on.
type packer struct {
	idle queue[*region.Buffer]
	// open is the buffer being packed, or nil. count is the number of packed tensors, and end
	// the end of the last one.
	open  *region.Buffer
	count int
	end   uint64
}

// bucket is a bucket that was agreed on. buffer is nil for a single tensor that is reduced in
// place.
type bucket struct {
	Bucket
	buffer *region.Buffer
}

// piece is a tensor and its place.
type piece struct {
	view   domain.View
	buffer *region.Buffer
	// off is its offset in the buffer, and gap the number of padding bytes before it.
	off, gap uint64
}

// packAll packs tensors as they are added, whatever the cuts: the limits determine which
// tensors can't share a bucket.
func (f *Fuser) packAll(ctx context.Context) {
	for {
		p, ok := f.nextToPack()
		if !ok {
			return
		}
		// Earlier content of the gap might be NaN, and differs between the ranks.
		clear(p.buffer.Host(devices.Offset(p.off-p.gap), devices.Size(p.gap)))
		if err := move(ctx, p.buffer, p.off, p.view, true); err != nil {
			f.fail(fmt.Errorf("pack a tensor: %w", err))
			return
		}
		f.packed(p.buffer, p.off+uint64(p.view.Size()))
	}
}

// nextToPack waits for a tensor that can be packed. ok is false at the end.
func (f *Fuser) nextToPack() (_ piece, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.err == nil {
		p := &f.packer
		if p.open == nil && p.idle.len() > 0 {
			p.open = p.idle.at(0)
			p.idle.drop(1)
			p.count, p.end = 0, 0
		}
		if next := f.agreed + Ticket(p.count) + 1; p.open != nil && next <= f.added {
			v := f.items.at(int(next - f.done - 1))
			size := uint64(v.Size())
			if off, fits := f.place(p.end, size); fits && !f.alone(size) {
				return piece{v, p.open, off, off - p.end}, true
			}
		}
		f.changed.Wait()
	}
	return piece{}, false
}

// packed records that a tensor was packed, unless its bucket has ended before it.
func (f *Fuser) packed(b *region.Buffer, end uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.packer.open != b {
		return
	}
	f.packer.count++
	f.packer.end = end
	f.changed.Broadcast()
}

// unpackAll copies the results back to the tensors, one bucket after the other.
func (f *Fuser) unpackAll(ctx context.Context, full <-chan bucket) {
	for b := range full {
		if err := f.unpack(ctx, b); err != nil {
			f.fail(fmt.Errorf("unpack tensors %d to %d: %w", b.First, b.Last, err))
			f.stop() // nothing receives from full any more
			return
		}
		if f.opts.Observe != nil {
			f.opts.Observe(b.Bucket)
		}
		f.finish(b)
	}
	f.fail(nil)
}

func (f *Fuser) finish(b bucket) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items.drop(int(b.Last - b.First + 1))
	f.done = b.Last
	if b.buffer != nil {
		f.packer.idle.push(b.buffer)
	}
	f.changed.Broadcast()
}

// unpack copies the results of a bucket back.
func (f *Fuser) unpack(ctx context.Context, b bucket) error {
	if b.buffer == nil {
		return nil
	}
	end := uint64(0)
	for t := b.First; t <= b.Last; t++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		v := f.item(t)
		off := align(end)
		if err := move(ctx, b.buffer, off, v, false); err != nil {
			return err
		}
		end = off + uint64(v.Size())
	}
	return nil
}

// item returns a tensor that is not done.
func (f *Fuser) item(t Ticket) domain.View {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.items.at(int(t - f.done - 1))
}

// move copies a tensor into a buffer, or out of it.
func move(ctx context.Context, b *region.Buffer, off uint64, v domain.View, in bool) error {
	at, own, n := devices.Offset(off), v.Buffer(), v.Size()
	if n == 0 {
		return nil
	}
	if err := own.Hold(); err != nil {
		return err
	}
	defer own.Drop()
	theirs, ours := own.Host(v.Offset(), n), b.Host(at, n)
	switch {
	case theirs != nil && in:
		copy(ours, theirs)
		return nil
	case theirs != nil:
		copy(theirs, ours)
		return nil
	case in:
		return region.Copy(ctx, b, at, own, v.Offset(), n)
	}
	return region.Copy(ctx, own, v.Offset(), b, at, n)
}
