package fs

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// source is an open object that is read ahead of.
type source interface {
	// Peek reads len(p) bytes, less only at the end, and does not count as an
	// access; Accessed does.
	Peek(ctx context.Context, p []byte, off uint64) (int, error)
	Accessed()
	// Version changes with the content, see objects.File.
	Version() uint64
	// Foreign says that the content also changes without Version.
	Foreign() bool
	Size() uint64
}

// slotPinner is a source whose device reads faster into memory that is locked for it.
type slotPinner interface {
	// PinSlot locks a slot for the device that the content is on.
	PinSlot(s *transport.Slot)
}

func pinSlot(src source, s *transport.Slot) {
	if p, ok := src.(slotPinner); ok {
		p.PinSlot(s)
	}
}

// errPanicked stands for a panic of the source in a goroutine where go-fuse
// does not catch it.
var errPanicked = errors.New("fs: read-ahead panicked")

// chunk is a piece of a file that is read, or was, before it was asked for.
type chunk struct {
	off     uint64
	want    int // how many bytes were asked for
	version uint64
	slot    *transport.Slot
	budget  *aheadBudget
	// refs are one of the fetch, one of the window and one of each reader.
	// The slot goes back with the last.
	refs atomic.Int32

	// done is closed when n and err are set.
	done chan struct{}
	n    int
	err  error
}

// end is the offset behind the chunk.
func (c *chunk) end() uint64 { return c.off + uint64(c.want) }

// fetch reads the chunk. The version was taken before.
func (c *chunk) fetch(ctx context.Context, src source) {
	c.err = errPanicked
	defer c.unref()
	defer close(c.done)
	defer func() { _ = recover() }() // the reader reads again, and panics there
	pinSlot(src, c.slot)
	c.n, c.err = src.Peek(ctx, c.slot.Bytes()[:c.want], c.off)
}

// valid says whether the chunk, which is done, is what the file holds now.
func (c *chunk) valid(src source) bool {
	return c.err == nil && c.version == src.Version()
}

func (c *chunk) ref() { c.refs.Add(1) }

func (c *chunk) unref() {
	if c.refs.Add(-1) == 0 {
		c.slot.Release()
		c.budget.give(c.want)
	}
}

// aheadBudget bounds the bytes of all windows of a mount, so that readers who
// pause do not hold the pinned memory that copies between devices wait for.
type aheadBudget struct {
	used atomic.Int64
	max  int64
}

// maxAhead bounds the pinned memory that may be read ahead into: half of what the
// engine has, as long as nobody gave it another amount.
const maxAhead = transport.DefaultMaxPinned / 2

func (b *aheadBudget) take(n int) bool {
	if b.used.Add(int64(n)) <= b.max {
		return true
	}
	b.give(n)
	return false
}

func (b *aheadBudget) give(n int) { b.used.Add(-int64(n)) }

// slotSource lends pinned memory.
type slotSource interface {
	TryGet(n devices.Size) (*transport.Slot, bool)
}
