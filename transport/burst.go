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
// the accounting takes longer than the bytes: a Burst enters the engine once, and adds to its counters at the end. It measures
// one of eight copies of the same size up to 64 KiB, and counts the others with that time.
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

// Begin makes an engine ready for copies. It reports whether the engine is open; if so, End must follow.
func (b *Burst) Begin(e *Engine) bool {
	if !e.gate.Enter() {
		return false
	}
	*b = Burst{engine: e}
	return true
}

// Begun reports whether End must follow.
func (b *Burst) Begun() bool { return b != nil && b.engine != nil }

// Copy copies n bytes from one mapped file of a device to another, or within one, at byte offsets to and from. They may overlap: dst
// then holds what src held before. It is not interrupted.
//
// Errors: devices.ErrRange for a range that is not inside its mapping; nothing has been copied then.
func (b *Burst) Copy(device devices.Name, dst *Mapping, to uint64, src *Mapping, from, n uint64) error {
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
		now := b.engine.clock()
		b.engine.last.Store(int64(now))
		b.took, b.size, b.left = now-start, info.Bytes, 0
		if info.Bytes <= burstSize {
			b.left = burstTimed - 1
		}
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

// End counts the copies. It does nothing if Begin has not been called, or has returned false.
func (b *Burst) End() {
	if !b.Begun() {
		return
	}
	b.settle()
	b.engine.gate.Leave()
	b.engine = nil
}

func (b *Burst) settle() {
	if b.sums.operations > 0 {
		b.engine.counters.row(b.key).addAll(&b.sums)
		b.sums = sums{}
	}
}

// holds reports whether a range is inside the mapping.
func (m *Mapping) holds(off, n uint64) bool {
	size := uint64(len(m.bytes))
	return off <= size && n <= size-off
}
