package region

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/internal/gate"
)

// Buffer is registered memory: host bytes, a part of a device's memory, or of a
// file that pinned host memory is kept in.
// All methods may be called from any goroutine; operations on overlapping
// ranges at the same time leave unspecified bytes in the overlap.
type Buffer struct {
	table *Table
	// The buffer is size bytes from start of a space.
	space space
	start uint64
	size  devices.Size
	reg   *registration
	// host is host memory, rest all other: dev or a part of file.
	host []byte
	rest transport.Span
	dev  devices.Span
	file *os.File
	// lent says that the file's pages may be sent as they are.
	lent bool
	// own gives back what the buffer itself holds, if not nil.
	own  func() error
	gate gate.Gate
	// dropped is set by the Close that gives the memory back.
	dropped atomic.Bool

	mu sync.Mutex
	// closing are told when Close is called.
	// +checklocks:mu
	closing []*Watch
}

// Size returns the length in bytes.
func (b *Buffer) Size() devices.Size { return b.size }

// Device names the device that the memory belongs to; empty for host bytes.
func (b *Buffer) Device() devices.Name {
	return b.rest.Device()
}

// Check says whether n bytes from off lie inside the buffer: nil, or
// devices.ErrRange.
func (b *Buffer) Check(off devices.Offset, n devices.Size) error {
	r := devices.Range{Off: off, Len: n}
	if !r.Within(b.size) {
		return fmt.Errorf("%v of a registered buffer of %d bytes: %w", r, uint64(b.size), devices.ErrRange)
	}
	return nil
}

// Hold keeps the memory from being given back until Drop. It fails with
// devices.ErrClosed once Close has been called.
func (b *Buffer) Hold() error {
	if !b.gate.Enter() {
		return fmt.Errorf("registered buffer: %w", devices.ErrClosed)
	}
	return nil
}

// Drop ends a Hold.
func (b *Buffer) Drop() { b.gate.Leave() }

// Host returns n bytes from off of host memory, and nil for all other memory.
// Preconditions: the buffer is held, and the range was checked.
func (b *Buffer) Host(off devices.Offset, n devices.Size) []byte {
	if b.host == nil {
		return nil
	}
	return b.host[off : uint64(off)+uint64(n) : uint64(off)+uint64(n)]
}

// File returns the file that holds the memory, and where off is in it. lent
// says that its pages may be sent as they are: see RegisterSpan. f is nil for
// all other memory.
//
// Preconditions: the buffer is held, and the range was checked.
func (b *Buffer) File(off devices.Offset) (f *os.File, at int64, lent bool) {
	return b.file, int64(b.start) + int64(off), b.lent
}

// View shows n bytes from off of device memory in place; ok is false for all
// other memory, and where the device can't map it.
//
// Preconditions: the buffer is held until the view is released, and the range
// was checked.
func (b *Buffer) View(ctx context.Context, off devices.Offset, n devices.Size, access devices.Access) (view devices.View, ok bool, err error) {
	if b.dev.Mem == nil {
		return devices.View{}, false, nil
	}
	if _, can := b.dev.Mem.Device().(devices.HostMapper); !can {
		return devices.View{}, false, nil
	}
	s := b.dev
	s.Off, s.Len = s.Off+off, n
	view, err = devices.MapHost(ctx, s, access)
	if errors.Is(err, devices.ErrUnsupported) {
		return devices.View{}, false, nil
	}
	return view, err == nil, err
}

// PinSlot locks a slot for the device that the memory is on. The caller holds
// the slot.
func (b *Buffer) PinSlot(s *transport.Slot) {
	if b.dev.Mem != nil {
		s.Pin(b.dev.Mem.Device())
	}
}

// span is n bytes from off for the engine.
func (b *Buffer) span(off devices.Offset, n devices.Size) (transport.Span, error) {
	if err := b.Check(off, n); err != nil {
		return transport.Span{}, err
	}
	if b.host != nil {
		return transport.HostSpan(b.Host(off, n)), nil
	}
	return b.rest.Part(off, n)
}

// Store copies every byte of src, host or device memory, to the buffer at
// off.
//
// Errors: devices.ErrRange for bytes outside of the buffer,
// devices.ErrClosed, and those of the engine.
func (b *Buffer) Store(ctx context.Context, off devices.Offset, src transport.Span) error {
	if err := b.Hold(); err != nil {
		return err
	}
	defer b.Drop()
	dst, err := b.span(off, src.Len())
	if err != nil {
		return err
	}
	return b.table.copyWith(ctx, dst, src)
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
	return b.table.copyWith(ctx, dst, src)
}

// Move copies n bytes inside the buffer, as memmove does: the two ranges may
// overlap. Its errors are those of Store.
func (b *Buffer) Move(ctx context.Context, to, from devices.Offset, n devices.Size) error {
	if err := b.Hold(); err != nil {
		return err
	}
	defer b.Drop()
	dst, err := b.span(to, n)
	if err != nil {
		return err
	}
	src, err := b.span(from, n)
	if err != nil {
		return err
	}
	return b.table.copyWith(ctx, dst, src)
}

// Copy copies n bytes from one buffer of this process to another, or to a
// place in the same one. Its errors are those of Store, for both.
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

// Close ends the buffer: keys to it name nothing any more, and operations
// that are under way are waited for. With the last buffer of a registration
// the memory is given back. Closing twice is harmless.
//
// When the context ends first, the buffer is closed for new operations, its
// memory is kept, and Close may be called again.
func (b *Buffer) Close(ctx context.Context) error {
	if b.gate.Shut() {
		b.tellClosing()
	}
	if err := b.gate.Wait(ctx); err != nil {
		return fmt.Errorf("wait for the operations on a registered buffer: %w", err)
	}
	if !b.dropped.CompareAndSwap(false, true) {
		return nil
	}
	if err := b.table.drop(b); err != nil {
		return fmt.Errorf("give a registered buffer of %v back: %w", b.size, err)
	}
	return nil
}

// Watch is somebody who wants to know when a buffer is closed.
type Watch struct{ tell func() }

// Watch calls tell when Close is called, which is before the operations that
// are under way have ended: who holds the buffer for long lets it go then. tell
// must not wait. It is called from here where Close has been called already.
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

// Unwatch ends a Watch. One that is being told already may still be.
func (b *Buffer) Unwatch(w *Watch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closing = slices.DeleteFunc(b.closing, func(have *Watch) bool { return have == w })
}

// tellClosing tells everybody who watches, once.
func (b *Buffer) tellClosing() {
	b.mu.Lock()
	closing := b.closing
	b.closing = nil
	b.mu.Unlock()
	for _, w := range closing {
		w.tell()
	}
}
