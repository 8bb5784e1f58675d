package fs

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/transport"
)

// source is an open object that supports read-ahead.
type source interface {
	// Peek reads len(p) bytes, fewer only at the end, and does not count as an access;
	// Accessed does.
	Peek(ctx context.Context, p []byte, off uint64) (int, error)
	Accessed()
	// Version changes with the content; see objects.File.
	Version() uint64
	// Foreign reports whether the content also changes without Version changing.
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

// errPanicked represents a panic of the source in a goroutine where go-fuse does not catch
// it.
var errPanicked = errors.New("fs: read-ahead panicked")

// chunk is a piece of a file that is read before it is requested.
type chunk struct {
	off     uint64
	want    int // number of bytes requested from the source
	version uint64
	slot    *transport.Slot
	budget  *aheadBudget
	// refs counts one for the fetch, one for the window and one for each reader. The last
	// unref releases the slot.
	refs atomic.Int32

	// done is closed when n and err are set.
	done chan struct{}
	n    int
	err  error
}

func (c *chunk) end() uint64 { return c.off + uint64(c.want) }

// fetch reads the chunk. Its version was read before.
func (c *chunk) fetch(ctx context.Context, src source) {
	c.err = errPanicked
	defer c.unref()
	defer close(c.done)
	defer func() { _ = recover() }() // the reader reads again, and panics there
	pinSlot(src, c.slot)
	c.n, c.err = src.Peek(ctx, c.slot.Bytes()[:c.want], c.off)
}

// valid reports whether the chunk, whose fetch is done, matches the file's present content.
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

// aheadBudget bounds the bytes of all windows of a mount, so that readers that pause do not
// hold the pinned memory that copies between devices wait for.
type aheadBudget struct {
	used atomic.Int64
	max  int64
}

// maxAhead bounds the pinned memory used for read-ahead: half of the engine's default
// amount.
const maxAhead = transport.DefaultMaxPinned / 2

func (b *aheadBudget) take(n int) bool {
	if b.used.Add(int64(n)) <= b.max {
		return true
	}
	b.give(n)
	return false
}

func (b *aheadBudget) give(n int) { b.used.Add(-int64(n)) }
