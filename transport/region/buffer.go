package region

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// Buffer is registered memory: host bytes, or a part of a device's memory.
// All methods may be called from any goroutine; operations on overlapping
// ranges at the same time leave unspecified bytes in the overlap.
type Buffer struct {
	table *Table
	// space is the address space, as in Table.spaces.
	space *devices.Memory
	reg   *registration
	host  []byte
	dev   devices.Span
	size  devices.Size
	gate  gate
}

// Size returns the length in bytes.
func (b *Buffer) Size() devices.Size { return b.size }

// Device names the device that the memory belongs to; empty for host bytes.
func (b *Buffer) Device() devices.Name {
	if b.space == nil {
		return ""
	}
	return b.space.Device().Info().Name
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
	if !b.gate.enter() {
		return fmt.Errorf("registered buffer: %w", devices.ErrClosed)
	}
	return nil
}

// Drop ends a Hold.
func (b *Buffer) Drop() { b.gate.leave() }

// Host returns n bytes from off of host memory, and nil for device memory.
// Preconditions: the buffer is held, and the range was checked.
func (b *Buffer) Host(off devices.Offset, n devices.Size) []byte {
	if b.host == nil {
		return nil
	}
	return b.host[off : uint64(off)+uint64(n) : uint64(off)+uint64(n)]
}

// span is n bytes from off for the engine.
func (b *Buffer) span(off devices.Offset, n devices.Size) (transport.Span, error) {
	if err := b.Check(off, n); err != nil {
		return transport.Span{}, err
	}
	if b.host != nil {
		return transport.HostSpan(b.Host(off, n)), nil
	}
	s, err := b.dev.Sub(off, n)
	if err != nil {
		return transport.Span{}, err
	}
	return transport.DeviceSpan(s), nil
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
	b.gate.shut()
	if err := b.gate.wait(ctx); err != nil {
		return fmt.Errorf("wait for the operations on a registered buffer: %w", err)
	}
	if !b.gate.once.CompareAndSwap(false, true) {
		return nil
	}
	if err := b.table.drop(b); err != nil {
		return fmt.Errorf("give a registered buffer of %v back: %w", b.size, err)
	}
	return nil
}
