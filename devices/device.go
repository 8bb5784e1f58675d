package devices

import (
	"context"
	"fmt"
)

// Family is a kind of device: "host", "sim", "opencl", "cuda" and more.
type Family string

// Ordinal counts the devices of one family from 0.
type Ordinal int

// Name is the name of a device everywhere: its directory in the mount,
// its row in a table. "host" has no ordinal; others are "sim0", "ocl1".
type Name string

// Epoch is one incarnation of a device's memory. 0 is no epoch.
type Epoch uint64

// Info tells the facts of a device that do not change while it is open.
type Info struct {
	Name    Name
	Family  Family
	Ordinal Ordinal
	// Model is the vendor's name for it, for people.
	Model string
	// Total is the memory that hmcfs may use of it, in bytes.
	Total Size
	// MaxAlloc is the largest single allocation; 0 means Total.
	MaxAlloc Size
	// Align is the alignment of the start of an allocation, in bytes.
	Align Size
	// PCI is the bus address ("0000:65:00.0"), empty where there is none.
	PCI string
	// UUID is the vendor's name for this very card on any machine
	// ("GPU-8f…"), empty where there is none.
	UUID string
	// Card is the UUID of the whole card where the device is a part of one
	// (MIG), else empty.
	Card string
	// NUMA is the node of the host that it hangs on, -1 where unknown.
	NUMA int
	// HostMemory says that the device's memory is the host's own, so a map
	// costs nothing.
	HostMemory bool
}

// CheckUUID returns an ErrHandle unless memory of the device with the given UUID
// is memory of this one. What either side does not know passes.
func (i Info) CheckUUID(uuid string) error {
	switch uuid {
	case "", i.UUID:
		return nil
	case i.Card:
		return fmt.Errorf("the memory is called by the card %s, and %s is a part of that card: give its own UUID, %s: %w",
			uuid, i.Name, i.UUID, ErrHandle)
	}
	if i.UUID == "" {
		return nil
	}
	return fmt.Errorf("the memory is of device %s, and %s is %s: %w", uuid, i.Name, i.UUID, ErrHandle)
}

// Usage is a device's memory at one moment, in bytes. Used + Free is Total,
// unless other programs take memory of the same device: then Free is less.
type Usage struct {
	Total Size `json:"total"`
	Used  Size `json:"used"`
	Free  Size `json:"free"`
}

// Device is memory that can be allocated and copied to and from.
//
// All methods may be called at the same time from any goroutine. A copy is
// complete, and visible to every later call, when its method returns. Copies
// to overlapping ranges at the same time leave unspecified bytes in the
// overlap and nowhere else.
//
// Every method that takes a context gives up between two pieces of work when
// the context ends, returns its error, and leaves unspecified bytes in the
// destination span only.
//
// Errors:
//   - ErrOutOfMemory (as *OutOfMemoryError) from Alloc;
//   - ErrRange for a span that does not lie inside its memory, or lengths
//     that differ;
//   - ErrLost when the memory belongs to an epoch that is gone;
//   - ErrClosed after Close;
//   - ErrDevice, wrapped with the vendor's code and text, for all else. After
//     it the destination span holds unspecified bytes.
type Device interface {
	// Info returns the facts. It does not block.
	Info() Info
	// Epoch returns the present incarnation of the memory. It does not block.
	Epoch() Epoch
	// Alloc takes n bytes, n > 0, of unspecified content: the caller must
	// not show them to anyone before it has written them. n = 0 is ErrRange.
	Alloc(ctx context.Context, n Size) (*Memory, error)
	// CopyIn moves bytes host to device (H2D). len(src) must be dst.Len. src
	// is not kept.
	CopyIn(ctx context.Context, dst Span, src []byte) error
	// CopyOut moves bytes device to host (D2H). len(dst) must be src.Len.
	CopyOut(ctx context.Context, dst []byte, src Span) error
	// Copy moves bytes inside the device, as memmove does: the spans may
	// overlap. Both memories must be this device's.
	Copy(ctx context.Context, dst, src Span) error
	// Fill sets every byte of the span.
	Fill(ctx context.Context, dst Span, value byte) error
	// Usage tells how much memory is used and free now.
	Usage() (Usage, error)
	// Close gives everything back. Memories that are still held become
	// ErrClosed. Closing twice is harmless.
	Close() error
}

// Span is a part of one allocation. Make it with Memory.Span, which checks
// that it lies inside.
type Span struct {
	Mem *Memory
	Range
}

// Sub returns the part of the span that begins off bytes in and is n long.
func (s Span) Sub(off Offset, n Size) (Span, error) {
	r := Range{Off: off, Len: n}
	if !r.Within(s.Len) {
		return Span{}, fmt.Errorf("part %v of a span of %d bytes: %w", r, uint64(s.Len), ErrRange)
	}
	return Span{Mem: s.Mem, Range: Range{Off: s.Off + off, Len: n}}, nil
}

// Check says whether the span is usable on the device: memory of that
// device, not released, a range inside it. Every Device calls it first.
func (s Span) Check(d Device) error {
	switch {
	case s.Mem == nil:
		return fmt.Errorf("span without memory: %w", ErrRange)
	case s.Mem.device != d:
		return fmt.Errorf("memory of %s used on %s: %w", s.Mem.name, d.Info().Name, ErrRange)
	case !s.Within(s.Mem.size):
		return fmt.Errorf("%v of %d bytes on %s: %w", s.Range, uint64(s.Mem.size), s.Mem.name, ErrRange)
	}
	return s.Mem.alive()
}
