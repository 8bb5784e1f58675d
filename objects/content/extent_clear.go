package content

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// Cut implements Content.
func (x *Extents) Cut(_ context.Context, size uint64) error {
	if err := x.CheckEpoch(); err != nil {
		return err
	}
	x.dropTail(x.ceil(size))
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.at(size); ok && e.off+e.written > size {
		had := e.off + e.written
		e.written = size - e.off
		x.tree.Set(e.off, e)
		x.relabel(e, had, size)
	}
	x.healLocked(size, ^uint64(0)>>1)
	return nil
}

// Clear implements Content.
func (x *Extents) Clear(ctx context.Context, off, n uint64, keep bool) error {
	if err := x.CheckEpoch(); err != nil {
		return err
	}
	end := off + n
	if off < x.pinned {
		shared := min(end, x.pinned)
		if err := x.wipe(ctx, off, shared); err != nil || shared == end {
			return err
		}
		off = shared
	}
	from, to := x.ceil(off), x.floor(end)
	if from >= to {
		return x.zero(ctx, off, end)
	}
	if err := x.zero(ctx, off, from); err != nil {
		return err
	}
	if err := x.zero(ctx, to, end); err != nil {
		return err
	}
	x.drop(from, to, keep)
	x.mu.Lock()
	x.healLocked(from, to)
	x.mu.Unlock()
	return nil
}

// zero makes bytes read as zeros in place.
func (x *Extents) zero(ctx context.Context, off, end uint64) error {
	for _, e := range x.overlapping(off, end) {
		a, b := max(off, e.off), min(end, e.off+e.written)
		if a >= b {
			continue
		}
		if b == e.off+e.written {
			e.written = a - e.off
			x.put(e)
			x.relabel(e, b, a)
			continue
		}
		if err := x.engine.Fill(ctx, transport.DeviceSpan(e.span(a, b-a)), 0); err != nil {
			x.damage(a, b-a, true)
			return fmt.Errorf("zero %d bytes on %s: %w", b-a, x.tier.Name, err)
		}
	}
	x.mu.Lock()
	x.healLocked(off, end)
	x.mu.Unlock()
	return nil
}

// put replaces an extent by one with the same offset and length.
func (x *Extents) put(e extent) {
	x.mu.Lock()
	x.tree.Set(e.off, e)
	x.mu.Unlock()
}

// damage records bytes whose value is unknown. If the device is not broken, they are old ones and new ones, as those are that a
// process was copying when it was killed: the one that writes them writes them again, to the process that follows,
// too, and no other bytes may be lost by then.
func (x *Extents) damage(off, n uint64, broken bool) {
	x.mu.Lock()
	x.bad = append(x.bad, devices.Range{Off: devices.Offset(off), Len: devices.Size(n)})
	x.mu.Unlock()
	if broken {
		x.flag(stateDamaged, true)
	}
}

// healLocked removes damage in [off, end), which has new bytes.
func (x *Extents) healLocked(off, end uint64) {
	if len(x.bad) == 0 {
		return
	}
	var left []devices.Range
	for _, r := range x.bad {
		a, b := uint64(r.Off), uint64(r.End())
		if a < off {
			left = append(left, rangeOf(a, min(b, off)))
		}
		if b > end {
			left = append(left, rangeOf(max(a, end), b))
		}
	}
	x.bad = left
	if len(left) == 0 {
		x.flag(stateDamaged, false)
	}
}

// rangeOf returns the range [from, to).
func rangeOf(from, to uint64) devices.Range {
	return devices.Range{Off: devices.Offset(from), Len: devices.Size(to - from)}
}

// Damaged reports whether the value of some bytes is unknown. Such content stays in
// memory, since records can't express it.
func (x *Extents) Damaged() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.bad) > 0
}
