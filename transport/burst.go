package transport

import (
	"fmt"
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
	// left is the number of further copies of size bytes that take is the time of.
	left int
	size devices.Size
	took time.Duration
}

// Begin prepares for copies by an engine, after which End must follow.
func (b *Burst) Begin(e *Engine) { *b = Burst{engine: e} }

// Begun reports whether End must follow.
func (b *Burst) Begun() bool { return b != nil && b.engine != nil }

// Copy copies n bytes from one mapped file of a device to another, or within one mapping, at byte offsets to and from. They may
// overlap: dst then holds what src held before. The mappings must not be two of one file, see Alias. It is not interrupted.
//
// Errors: devices.ErrRange for a range that is not inside its mapping; nothing has been copied then. devices.ErrClosed after the engine's Close.
func (b *Burst) Copy(device devices.Name, dst *Mapping, to uint64, src *Mapping, from, n uint64) error {
	if !b.engine.gate.Enter() {
		return errEngineClosed()
	}
	defer b.engine.gate.Leave()
	info := CopyInfo{Path: PathD2D, Device: device, Peer: device, Bytes: devices.Size(n)}
	if !dst.holds(to, n) || !src.holds(from, n) {
		info.Err = fmt.Errorf("copy %v within %s: from %d of %d bytes to %d of %d: %w",
			info.Bytes, device, from, len(src.bytes), to, len(dst.bytes), devices.ErrRange)
		b.engine.ended(&info, b.engine.clock())
		return info.Err
	}
	if n == 0 {
		return nil // as Engine.Copy does
	}
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
	if b.engine.listens {
		b.engine.opts.Listener.Copied(info)
	}
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

// Alias reports whether two mappings are different ones of the same file: their ranges may overlap although their addresses do not.
func (m *Mapping) Alias(of *Mapping) bool { return m != of && m.dev == of.dev && m.ino == of.ino }

// holds reports whether a range is inside the mapping.
func (m *Mapping) holds(off, n uint64) bool {
	size := uint64(len(m.bytes))
	return off <= size && n <= size-off
}
