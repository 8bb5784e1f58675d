package devices

import (
	"context"
	"fmt"
)

// Family is a kind of device: "host", "sim", "opencl", "cuda" and more.
type Family string

// Ordinal counts the devices of one family from 0.
type Ordinal int

// Name is the name of a device everywhere: the directory in the mount, the row in a table.
// "host" has no ordinal; others are "sim0", "ocl1".
type Name string

// Epoch is one incarnation of a device's memory. 0 is not a valid epoch.
type Epoch uint64

// Info describes a device by facts that do not change while it is open.
type Info struct {
	Name    Name
	Family  Family
	Ordinal Ordinal
	// Model is the vendor's name for the model, for people.
	Model string
	// Total is the memory of the device that hmcfs may use, in bytes.
	Total Size
	// MaxAlloc is the largest single allocation; 0 means Total.
	MaxAlloc Size
	// Align is the alignment of the start of an allocation, in bytes.
	Align Size
	// PCI is the bus address ("0000:65:00.0"), empty if there is none.
	PCI string
	// UUID is the vendor's identifier of this card on any machine ("GPU-8f…"), empty if
	// there is none.
	UUID string
	// Card is the UUID of the whole card if the device is a partition of one (MIG),
	// otherwise empty.
	Card string
	// NUMA is the host's NUMA node that the device is attached to, -1 if unknown.
	NUMA int
	// HostMemory reports whether the device's memory is the host's own, so that mapping it
	// costs nothing.
	HostMemory bool
}

// CheckUUID returns an ErrHandle unless memory of the device with the given UUID is memory
// of this one. If either UUID is unknown, it returns nil.
func (i Info) CheckUUID(uuid string) error {
	switch uuid {
	case "", i.UUID:
		return nil
	case i.Card:
		return fmt.Errorf("the memory is identified by the card %s, and %s is a part of that card; give the UUID of the part, %s: %w",
			uuid, i.Name, i.UUID, ErrHandle)
	}
	if i.UUID == "" {
		return nil
	}
	return fmt.Errorf("the memory belongs to device %s, but %s is %s: %w", uuid, i.Name, i.UUID, ErrHandle)
}

// Usage is a device's memory at one moment, in bytes. Used + Free is Total, unless other
// programs use memory of the same device: then Free is less.
type Usage struct {
	Total Size `json:"total"`
	Used  Size `json:"used"`
	Free  Size `json:"free"`
}

// Device is memory that can be allocated and copied to and from.
//
// All methods are safe for concurrent use. A copy is complete, and visible to every later
// call, when its method returns. Concurrent copies to overlapping ranges leave unspecified
// bytes in the overlap and nowhere else.
//
// Every method with a context stops between two pieces of work when the context ends,
// returns its error, and leaves unspecified bytes in the destination span only.
//
// Errors:
//   - ErrOutOfMemory (as *OutOfMemoryError) from Alloc;
//   - ErrRange for a span that is not inside its memory, or lengths that differ;
//   - ErrLost if the memory belongs to an epoch that has ended;
//   - ErrClosed after Close;
//   - ErrDevice, wrapped with the vendor's code and text, for all other errors. After
//     it the destination span holds unspecified bytes.
type Device interface {
	// Info returns the description of the device. It does not block.
	Info() Info
	// Epoch returns the current incarnation of the memory. It does not block.
	Epoch() Epoch
	// Alloc allocates n bytes, n > 0, with unspecified content, which the caller must not
	// disclose before it has overwritten it. n = 0 is ErrRange.
	Alloc(ctx context.Context, n Size) (*Memory, error)
	// CopyIn copies bytes from host to device (H2D). len(src) must be dst.Len. src is not
	// retained.
	CopyIn(ctx context.Context, dst Span, src []byte) error
	// CopyOut copies bytes from device to host (D2H). len(dst) must be src.Len.
	CopyOut(ctx context.Context, dst []byte, src Span) error
	// Copy copies bytes within the device, as memmove does: the spans may overlap. Both
	// memories must be this device's.
	Copy(ctx context.Context, dst, src Span) error
	// Fill sets every byte of the span.
	Fill(ctx context.Context, dst Span, value byte) error
	// Usage returns how much memory is used and free at present.
	Usage() (Usage, error)
	// Close frees everything. Memories that are still held become ErrClosed. A second Close
	// is harmless.
	Close() error
}

// Span is a part of one allocation. Memory.Span creates one and checks that it is inside.
type Span struct {
	Mem *Memory
	Range
}

// Sub returns the part of the span with offset off and length n.
func (s Span) Sub(off Offset, n Size) (Span, error) {
	r := Range{Off: off, Len: n}
	if !r.Within(s.Len) {
		return Span{}, fmt.Errorf("range %v of a span of %d bytes: %w", r, uint64(s.Len), ErrRange)
	}
	return Span{Mem: s.Mem, Range: Range{Off: s.Off + off, Len: n}}, nil
}

// Check returns an error unless the span can be used on the device: memory of that device,
// not released, and a range inside it. Every Device calls it first.
func (s Span) Check(d Device) error {
	switch {
	case s.Mem == nil:
		return fmt.Errorf("span without memory: %w", ErrRange)
	case s.Mem.device != d:
		return fmt.Errorf("memory of %s used on %s: %w", s.Mem.name, d.Info().Name, ErrRange)
	case !s.Within(s.Mem.size):
		return fmt.Errorf("range %v of %d bytes on %s: %w", s.Range, uint64(s.Mem.size), s.Mem.name, ErrRange)
	}
	return s.Mem.alive()
}
