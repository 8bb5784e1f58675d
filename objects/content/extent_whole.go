package content

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/transport"
)

// whole is an allocation outside the arena that extents are parts of. It is freed with the
// last of them.
type whole struct {
	mem  *devices.Memory
	kind devices.HandleKind
	// left is the number of bytes that belong to extents.
	left atomic.Int64
}

func (w *whole) drop(n uint64) error {
	if w.left.Add(-int64(n)) > 0 {
		return nil
	}
	return w.mem.Release()
}

// WholeBytes returns the number of bytes that are not in the arena, so that records can't
// say where they are.
func (x *Extents) WholeBytes() uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.wholes
}

// Pin keeps the first n bytes where they are, since another process may have them mapped;
// 0 ends that. The caller holds the object's lane.
func (x *Extents) Pin(n uint64) { x.pinned = n }

// IsPinned reports whether bytes have to stay where they are. The caller holds the object's
// lane.
func (x *Extents) IsPinned() bool { return x.pinned > 0 }

// DropWholes frees everything if a part of it is not in the arena.
func (x *Extents) DropWholes() {
	if x.WholeBytes() > 0 {
		x.dropTail(0)
	}
}

// Gather moves the first size bytes into one allocation that the device can export as kind
// and that holds nothing but those bytes and zeros. Bytes that are in one already stay.
func (x *Extents) Gather(ctx context.Context, size uint64, kind devices.HandleKind) (*devices.Memory, error) {
	if err := x.CheckEpoch(); err != nil {
		return nil, err
	}
	if e, ok := x.at(0); ok && e.whole != nil && e.whole.kind == kind && e.lease.Span.Off == 0 && e.written >= size {
		return e.whole.mem, x.blank(ctx, e.whole.mem, size)
	}
	length := x.ceil(size)
	mem, err := x.allocShared(ctx, devices.Size(length), kind)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes that can be exported: %w", length, err)
	}
	if err = x.copyTo(ctx, mem, size); err == nil {
		err = x.blank(ctx, mem, size)
	}
	if err != nil {
		return nil, errors.Join(err, mem.Release())
	}
	span, err := mem.Span(devices.Range{Len: devices.Size(length)})
	if err != nil {
		return nil, errors.Join(err, mem.Release())
	}
	w := &whole{mem: mem, kind: kind}
	w.left.Store(int64(length))
	x.swap(extent{len: length, written: size, lease: arena.Lease{Span: span}, whole: w})
	return mem, nil
}

// allocShared allocates memory that can be exported; if the device is full, once more
// after the arena has freed its idle slabs.
func (x *Extents) allocShared(ctx context.Context, n devices.Size, kind devices.HandleKind) (*devices.Memory, error) {
	mem, err := devices.AllocShared(ctx, x.tier.Dev, n, kind)
	if !errors.Is(err, devices.ErrOutOfMemory) {
		return mem, err
	}
	for range 2 { // the first marks what is idle
		if err := x.tier.Trim(); err != nil {
			return nil, err
		}
	}
	return devices.AllocShared(ctx, x.tier.Dev, n, kind)
}

// copyTo copies the first size bytes, holes as zeros. An interrupted copy is discarded, so
// the device itself may stop when the context ends.
func (x *Extents) copyTo(ctx context.Context, mem *devices.Memory, size uint64) error {
	look := func(off, n uint64) (Range, error) { return x.Find(off, n, true) }
	err := Walk(ctx, look, 0, size, func(at Piece) error {
		dst, err := mem.Span(rangeOf(at.Off, at.Off+at.N))
		switch {
		case err != nil:
			return err
		case at.Hole:
			return x.engine.Fill(ctx, transport.DeviceSpan(dst), 0)
		}
		_, err = x.engine.Copy(ctx, transport.DeviceSpan(dst), at.Span)
		return err
	})
	if err != nil {
		return fmt.Errorf("gather %d bytes on %s: %w", size, x.tier.Name, err)
	}
	return nil
}

// blank zeroes an allocation behind its first size bytes: a process that maps it can read
// them too, and must not see another object's old bytes.
func (x *Extents) blank(ctx context.Context, mem *devices.Memory, size uint64) error {
	end := uint64(mem.Size())
	for off := size; off < end; off += MaxPiece {
		dst, err := mem.Span(rangeOf(off, min(end, off+MaxPiece)))
		if err == nil {
			err = x.engine.Fill(ctx, transport.DeviceSpan(dst), 0)
		}
		if err != nil {
			return fmt.Errorf("clear %d bytes after the exported range on %s: %w", end-size, x.tier.Name, err)
		}
	}
	return nil
}

// swap replaces everything in e's range by e.
func (x *Extents) swap(e extent) {
	x.mu.Lock()
	freed := x.dropLocked(e.off, e.end(), false)
	x.flag(stateLoose, true) // before any page of the old memory loses its label
	x.insertLocked(e)
	x.mu.Unlock()
	x.ahead = 0
	for _, old := range freed {
		x.free(old)
	}
}

// wipe zeroes a range that another process has mapped, in place.
func (x *Extents) wipe(ctx context.Context, off, end uint64) error {
	for ; off < end; off += min(end-off, MaxPiece) {
		n := min(end-off, MaxPiece)
		for _, e := range x.overlapping(off, off+n) {
			a, b := max(off, e.off), min(off+n, e.end())
			if err := x.engine.Fill(ctx, transport.DeviceSpan(e.span(a, b-a)), 0); err != nil {
				x.damage(a, b-a, true)
				return fmt.Errorf("zero %d bytes on %s: %w", b-a, x.tier.Name, err)
			}
		}
		x.mu.Lock()
		x.healLocked(off, off+n)
		x.mu.Unlock()
	}
	return nil
}
