package transport

import (
	"context"
	"time"

	"github.com/hmcfs/hmcfs/devices"
)

const (
	// burstTimed is the number of copies of a Burst that are counted with one measured time, and burstSize the size, in
	// bytes, of the largest of them: to read the clock twice takes as long as to copy 4 KiB.
	burstTimed = 8
	burstSize  = 64 * devices.KiB
)

// Burst makes copies within mapped files, one after the other. Most calls with many keys have small ones, of which
// the accounting takes longer than the bytes: a Burst adds to the engine's counters at its end. It measures
// one of eight copies of the same size up to 64 KiB, and counts the others with that time, unless it has taken more than twice as long as
// the one that was measured before: the first access to a page, and what interrupts a copy, stand for themselves.
//
// The zero value is ready to use, by one goroutine at a time, and may be used again after End.
type Burst struct {
	engine *Engine
	// key is that of the row that sums are for, and sums what is to be added to it.
	key  rowKey
	sums sums
	// left is the number of further copies of size bytes that are counted with the time took.
	left int
	size devices.Size
	took time.Duration
}

// Begin prepares for copies by an engine, after which End must follow.
func (b *Burst) Begin(e *Engine) { *b = Burst{engine: e} }

// Begun reports whether End must follow.
func (b *Burst) Begun() bool { return b.engine != nil }

// Copy copies n bytes from one mapped file of a device to another, or within one, at byte offsets to and from. They may
// overlap: dst then holds what src held before. It is not interrupted.
//
// Errors: those of Engine.Copy.
func (b *Burst) Copy(device devices.Name, dst *Mapping, to uint64, src *Mapping, from, n uint64) error {
	info := CopyInfo{Path: PathD2D, Device: device, Peer: device, Bytes: devices.Size(n)}
	// Two mappings of one file may overlap although their addresses do not.
	if n == 0 || !dst.holds(to, info.Bytes) || !src.holds(from, info.Bytes) || dst != src && dst.isOfFile(src) {
		_, err := b.engine.Copy(context.Background(),
			MappedSpan(device, dst, int64(to), info.Bytes), MappedSpan(device, src, int64(from), info.Bytes))
		return err
	}
	if !b.engine.gate.Enter() {
		return errEngineClosed()
	}
	defer b.engine.gate.Leave()
	if b.left > 0 && b.size == info.Bytes {
		b.left--
		copy(dst.bytes[to:to+n], src.bytes[from:from+n])
	} else {
		start := b.engine.clock()
		copy(dst.bytes[to:to+n], src.bytes[from:from+n])
		b.measured(info.Bytes, start)
	}
	info.Duration = b.took
	if key := (rowKey{info.Path, device}); key != b.key {
		b.settle()
		b.key = key
	}
	b.sums.add(info.Bytes, b.took)
	b.engine.opts.Listener.copied(&info)
	return nil
}

// measured records the time of a copy that has just ended, for those that follow.
func (b *Burst) measured(n devices.Size, start time.Duration) {
	now := b.engine.clock()
	b.engine.last.Store(int64(now))
	usual := b.size == n && now-start <= 2*b.took
	b.took, b.size, b.left = now-start, n, 0
	if usual && n <= burstSize {
		b.left = burstTimed - 1
	}
}

// End counts the copies. It does nothing without Begin.
func (b *Burst) End() {
	if b.Begun() {
		b.settle()
		b.engine = nil
	}
}

func (b *Burst) settle() {
	if b.sums.operations > 0 {
		b.engine.counters.row(b.key).addAll(&b.sums)
		b.sums = sums{}
	}
}
