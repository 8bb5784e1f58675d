package region

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/internal/gate"
)

// Buffer is registered memory: host bytes, a part of a device's memory, or a part
// of a file in pinned host memory. All methods may be called from any goroutine;
// concurrent operations on overlapping ranges leave unspecified bytes in the
// overlap.
type Buffer struct {
	table *Table
	// The buffer is size bytes from start of a space.
	space space
	start uint64
	size  devices.Size
	reg   *registration
	// host is host memory, rest any other kind: dev or a part of file.
	host []byte
	rest transport.Span
	dev  devices.Span
	file *os.File
	// borrowed means that the file's pages may be sent without copying.
	borrowed bool
	// own, if not nil, releases what the buffer itself holds.
	own  func() error
	gate gate.Gate
	// dropped is set by the Close that releases the memory.
	dropped atomic.Bool

	mu sync.Mutex
	// closing holds the watches to notify when Close is called.
	// +checklocks:mu
	closing []*Watch
}

// Size returns the length in bytes.
func (b *Buffer) Size() devices.Size { return b.size }

// Device names the device that the memory belongs to; empty for host bytes.
func (b *Buffer) Device() devices.Name {
	return b.rest.Device()
}

// Check checks that n bytes from off are inside the buffer: it returns nil, or
// devices.ErrRange.
func (b *Buffer) Check(off devices.Offset, n devices.Size) error {
	r := devices.Range{Off: off, Len: n}
	if !r.Within(b.size) {
		return fmt.Errorf("%v exceeds a registered buffer of %d bytes: %w", r, uint64(b.size), devices.ErrRange)
	}
	return nil
}

// Hold keeps the memory from being released until Drop. It fails with
// devices.ErrClosed once Close has been called.
func (b *Buffer) Hold() error {
	if !b.gate.Enter() {
		return fmt.Errorf("registered buffer: %w", devices.ErrClosed)
	}
	return nil
}

// Drop ends a Hold.
func (b *Buffer) Drop() { b.gate.Leave() }

// Host returns n bytes from off of host memory, or nil for every other kind of
// memory.
// Preconditions: the buffer is held, and the range was checked.
func (b *Buffer) Host(off devices.Offset, n devices.Size) []byte {
	if b.host == nil {
		return nil
	}
	return b.host[off : uint64(off)+uint64(n) : uint64(off)+uint64(n)]
}

// File returns the file that holds the memory, and the position of off in it.
// lent means that its pages may be sent without copying: see RegisterSpan. f is
// nil for every other kind of memory.
//
// Preconditions: the buffer is held, and the range was checked.
func (b *Buffer) File(off devices.Offset) (f *os.File, at int64, lent bool) {
	return b.file, int64(b.start) + int64(off), b.borrowed
}

// View maps n bytes from off of device memory in place; ok is false for every
// other kind of memory, and if the device can't map it.
//
// Preconditions: the buffer is held until the view is released, and the range
// was checked.
func (b *Buffer) View(ctx context.Context, off devices.Offset, n devices.Size, access devices.Access) (view devices.View, ok bool, err error) {
	if b.dev.Mem == nil {
		return devices.View{}, false, nil
	}
	s := b.dev
	s.Off, s.Len = s.Off+off, n
	return devices.TryMapHost(ctx, s, access)
}

// PinSlot locks a slot for the device that holds the memory. The caller holds the
// slot.
func (b *Buffer) PinSlot(s *transport.Slot) {
	if b.dev.Mem != nil {
		s.Pin(b.dev.Mem.Device())
	}
}

// span returns n bytes from off as a span for the engine.
func (b *Buffer) span(off devices.Offset, n devices.Size) (transport.Span, error) {
	if err := b.Check(off, n); err != nil {
		return transport.Span{}, err
	}
	if b.host != nil {
		return transport.HostSpan(b.Host(off, n)), nil
	}
	return b.rest.Part(off, n)
}

// Store copies every byte of src, host or device memory, to the buffer at off.
//
// Errors: devices.ErrRange for bytes outside the buffer, devices.ErrClosed, and
// those of the engine.
func (b *Buffer) Store(ctx context.Context, off devices.Offset, src transport.Span) error {
	if err := b.Hold(); err != nil {
		return err
	}
	defer b.Drop()
	dst, err := b.span(off, src.Len())
	if err != nil {
		return err
	}
	_, err = b.table.engine.Copy(ctx, dst, src)
	return err
}

// Load fills dst, host or device memory, with the buffer's bytes from off.
// Its errors are those of Store.
func (b *Buffer) Load(ctx context.Context, dst transport.Span, off devices.Offset) error {
	if err := b.Hold(); err != nil {
		return err
	}
	defer b.Drop()
	src, err := b.span(off, dst.Len())
	if err != nil {
		return err
	}
	_, err = b.table.engine.Copy(ctx, dst, src)
	return err
}

// Copy copies n bytes from one buffer of this process to another, or inside one,
// as memmove does: the two ranges may overlap. Its errors are those of Store, for
// both.
func Copy(ctx context.Context, dst *Buffer, to devices.Offset, src *Buffer, from devices.Offset, n devices.Size) error {
	if err := src.Hold(); err != nil {
		return err
	}
	defer src.Drop()
	s, err := src.span(from, n)
	if err != nil {
		return err
	}
	return dst.Store(ctx, to, s)
}

// Close closes the buffer: keys to it no longer name anything, and operations in
// progress are waited for. With the last buffer of a registration the memory is
// released. Closing twice is harmless.
//
// When the context ends first, the buffer is closed for new operations, its
// memory is kept, and Close may be called again.
func (b *Buffer) Close(ctx context.Context) error {
	if b.gate.Shut() {
		b.tellClosing()
	}
	if err := b.gate.Wait(ctx); err != nil {
		return fmt.Errorf("wait for operations on a registered buffer: %w", err)
	}
	if !b.dropped.CompareAndSwap(false, true) {
		return nil
	}
	if err := b.table.drop(b); err != nil {
		return fmt.Errorf("release a registered buffer of %v: %w", b.size, err)
	}
	return nil
}

// Watch is a registered interest in the closing of a buffer.
type Watch struct{ tell func() }

// Watch calls tell when Close is called, which is before the operations in
// progress have ended, so that a long-term holder of the buffer can release it.
// tell must not block. It is called from Watch itself if Close has been called
// already.
func (b *Buffer) Watch(tell func()) *Watch {
	w := &Watch{tell: tell}
	b.mu.Lock()
	b.closing = append(b.closing, w)
	b.mu.Unlock()
	if !b.gate.Enter() {
		b.tellClosing()
		return w
	}
	b.gate.Leave()
	return w
}

// Unwatch ends a Watch. A call of tell that has started may still be running.
func (b *Buffer) Unwatch(w *Watch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closing = slices.DeleteFunc(b.closing, func(have *Watch) bool { return have == w })
}

// tellClosing calls every watch, once.
func (b *Buffer) tellClosing() {
	b.mu.Lock()
	closing := b.closing
	b.closing = nil
	b.mu.Unlock()
	for _, w := range closing {
		w.tell()
	}
}
