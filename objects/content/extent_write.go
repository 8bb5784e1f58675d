package content

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/transport"
)

const (
	// maxAhead bounds the memory, in bytes, that a growing object allocates ahead of
	// need, so that a stream of small writes ends in few long extents.
	maxAhead = 16 << 20
	// minAhead is the size, in bytes, from which an object counts as growing.
	minAhead = 1 << 20
)

// Write implements Content.
func (x *Extents) Write(ctx context.Context, off uint64, src transport.Span) (uint64, transport.Path, error) {
	var done uint64
	var path transport.Path
	if err := x.CheckEpoch(); err != nil {
		return 0, path, err
	}
	// A piece that has begun is finished: after an interrupted one its bytes would be
	// unknown. And a write no longer than one piece, as the kernel's requests are, is
	// not interrupted at all: few programs expect EINTR or a short count from a write
	// to a file.
	interrupted, look := ctx.Err, uint64(MaxPiece)
	ctx = context.WithoutCancel(ctx)
	pace := x.tier.paceOf(src)
	for total := uint64(src.Len()); done < total; {
		if done >= look {
			if err := interrupted(); err != nil {
				return done, path, err
			}
			look = done + MaxPiece
		}
		e, err := x.ready(ctx, off+done, off+total)
		if err != nil {
			return done, path, x.full(err, total-done)
		}
		n := min(e.end()-off-done, total-done, pace.piece())
		from, err := src.Part(devices.Offset(done), devices.Size(n))
		if err != nil {
			return done, path, err
		}
		begin := time.Now()
		if err = x.clean(ctx, e, off+done+n, from); err != nil {
			return done, path, err
		}
		path, err = x.engine.Copy(ctx, transport.DeviceSpan(e.span(off+done, n)), from)
		if pace.took(n, time.Since(begin)); err != nil {
			x.failed(e, off+done, n, !from.IsRemote() || isOfDevice(err))
			return done, path, err
		}
		x.wrote(e, off+done, n)
		done += n
	}
	return done, path, nil
}

// clean zeroes the unwritten bytes before end if src is written by another machine into
// this memory: bytes that it does not write would show old contents.
func (x *Extents) clean(ctx context.Context, e extent, end uint64, src transport.Span) error {
	data := e.off + e.written
	if data >= end || !src.WritesDirectly() {
		return nil
	}
	if err := x.engine.Fill(ctx, transport.DeviceSpan(e.span(data, end-data)), 0); err != nil {
		return fmt.Errorf("zero %d bytes on %s: %w", end-data, x.tier.Name, err)
	}
	return nil
}

// failed records the result of a failed copy into [off, off+n): bytes that were data before
// are unknown now, all others still read as zeros. broken reports that the device has failed, and not the
// node that has the source.
func (x *Extents) failed(e extent, off, n uint64, broken bool) {
	if data := e.off + e.written; data > off {
		x.damage(off, min(data, off+n)-off, broken)
	}
}

// isOfDevice reports whether an error of a copy is that of a device.
func isOfDevice(err error) bool {
	return errors.Is(err, devices.ErrDevice) || errors.Is(err, devices.ErrLost) || errors.Is(err, devices.ErrNoDevice)
}

// wrote records that [off, off+n) of an extent holds data.
func (x *Extents) wrote(e extent, off, n uint64) {
	had := e.off + e.written
	e.written = max(e.written, off+n-e.off)
	x.relabel(e, had, e.off+e.written)
	x.mu.Lock()
	x.tree.Set(e.off, e)
	if e.off > 0 {
		if before, ok := x.at(e.off - 1); ok {
			e = x.joinLocked(before, e)
		}
	}
	if after, ok := x.at(e.end()); ok {
		x.joinLocked(e, after)
	}
	x.healLocked(off, off+n)
	x.mu.Unlock()
}

// joinLocked joins two neighbours that ready has split, if no unwritten bytes lie between
// them, and returns the extent that holds the second.
func (x *Extents) joinLocked(a, b extent) extent {
	between := a.lease.Span
	between.Off += devices.Offset(a.len)
	between.Len = b.lease.Span.Len
	if a.written < a.len || a.whole != b.whole || a.lease.Slab != b.lease.Slab || between != b.lease.Span {
		return b
	}
	x.removeLocked(a)
	x.removeLocked(b)
	a.lease.Span.Len += b.lease.Span.Len
	a.len, a.written = a.len+b.len, a.len+b.written
	x.insertLocked(a)
	return a
}

// ready returns the extent that holds off, with no unwritten gap before it: a partly
// written page is zeroed up to off, and whole unwritten pages are split off. It allocates
// memory where there is none, for bytes up to end at most.
func (x *Extents) ready(ctx context.Context, off, end uint64) (extent, error) {
	e, ok := x.at(off)
	if !ok {
		var err error
		if e, err = x.grow(ctx, off, end); err != nil {
			return extent{}, err
		}
	}
	data := e.off + e.written
	if off <= data {
		return e, nil
	}
	if page := x.floor(off); page > data {
		e = x.split(e, page)
		data = page
	}
	if off > data {
		if err := x.engine.Fill(ctx, transport.DeviceSpan(e.span(data, off-data)), 0); err != nil {
			return extent{}, fmt.Errorf("zero %d bytes on %s: %w", off-data, x.tier.Name, err)
		}
		e.written = off - e.off
		x.put(e)
		x.relabel(e, data, off)
	}
	return e, nil
}

// split splits an extent at a page boundary and returns the second part.
func (x *Extents) split(e extent, at uint64) extent {
	if at == e.off {
		return e
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removeLocked(e)
	x.insertLocked(e.part(e.off, at))
	second := e.part(at, e.end())
	x.insertLocked(second)
	return second
}

// grow allocates memory for off, and up to end as far as it is contiguous: by extending the
// extent before, or else as a new one.
func (x *Extents) grow(ctx context.Context, off, end uint64) (extent, error) {
	if err := x.claim(); err != nil {
		return extent{}, err
	}
	from, to, last := x.floor(off), x.ceil(end), true
	x.tree.Ascend(from, func(_ uint64, next extent) bool {
		to, last = min(to, next.off), false
		return false
	})
	want := to - from
	extra := uint64(0)
	if last && x.bytes >= minAhead {
		extra = min(x.ceil(x.bytes), maxAhead)
	}
	if e, ok := x.longer(from, want+extra); ok {
		x.noteAhead(e, to)
		return e, nil
	}
	lease, err := x.take(ctx, want, extra)
	if err != nil {
		return extent{}, fmt.Errorf("allocate memory for %d bytes: %w", want, err)
	}
	e := extent{off: from, len: uint64(lease.Span.Len), lease: lease}
	x.mu.Lock()
	x.insertLocked(e)
	x.mu.Unlock()
	x.label(e, e.off, e.end())
	x.noteAhead(e, to)
	return e, nil
}

// longer extends the extent that ends at from, in place.
func (x *Extents) longer(from, want uint64) (extent, bool) {
	if from == 0 {
		return extent{}, false
	}
	e, ok := x.at(from - 1)
	if !ok || e.whole != nil {
		return extent{}, false
	}
	by := uint64(x.tier.arena.Extend(e.lease, devices.Size(want)))
	if by == 0 {
		return extent{}, false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removeLocked(e)
	e.len += by
	e.lease.Span.Len += devices.Size(by)
	x.insertLocked(e)
	x.label(e, e.end()-by, e.end())
	return e, true
}

// take leases memory: want+extra bytes if there is room, else want, else the largest
// contiguous range. On a full device it waits for frees that are expected.
func (x *Extents) take(ctx context.Context, want, extra uint64) (arena.Lease, error) {
	if extra > 0 {
		lease, err := x.tier.arena.Alloc(ctx, devices.Size(want+extra))
		if err == nil || !errors.Is(err, devices.ErrOutOfMemory) {
			return lease, err
		}
	}
	for {
		// In this order: memory that leaves is late before it is not leaving any more.
		leaving, coming := x.tier.leaving.next(), x.tier.late.next()
		lease, err := x.tier.arena.AllocSome(ctx, devices.Size(want), devices.Size(x.page))
		if coming == nil && leaving == nil || !errors.Is(err, devices.ErrOutOfMemory) {
			return lease, err
		}
		select {
		case <-coming:
		case <-leaving:
		case <-ctx.Done():
			return arena.Lease{}, ctx.Err()
		}
	}
}

// noteAhead records the offset from which memory is ahead of need.
func (x *Extents) noteAhead(e extent, needed uint64) {
	if e.end() > needed {
		x.ahead = needed
	}
}
