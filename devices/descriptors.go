package devices

import (
	"context"
	"os"
)

// DescriptorStore keeps descriptors for the process that follows this one: memory behind a
// descriptor lives as long as any process has it. It is safe for concurrent use.
type DescriptorStore interface {
	// Keep stores a duplicate of the descriptor under name, instead of one that was there.
	Keep(name string, f *os.File) error
	// Kept returns duplicates of all descriptors whose names begin with prefix. The caller
	// closes them.
	Kept(prefix string) (map[string]*os.File, error)
	// Drop releases the descriptor under name; one that is not there is no error.
	Drop(name string) error
}

// Lasting is the ability of a device to allocate memory behind a descriptor. Such memory
// outlives the process if a DescriptorStore has the descriptor. It is a file of the host for a
// device whose memory is the host's own; other devices are a LastingMaker too.
type Lasting interface {
	// AllocIn allocates memory that consists of the first n bytes behind f, which nothing may
	// truncate, with the content that they have. It does not retain f. It fails with
	// ErrUnsupported if the device has no memory that can last, and with ErrHandle if f is not
	// of such memory, or no longer.
	AllocIn(ctx context.Context, f *os.File, n Size) (*Memory, error)
	// Resume continues an epoch of an earlier process, whose memory still exists. It is
	// called before the first allocation, and fails with ErrUnsupported as AllocIn does.
	Resume(e Epoch) error
}

// LastingOf returns the ability of a device to allocate memory behind descriptors; ok is
// false for a device whose memory ends with the process.
func LastingOf(d Device) (l Lasting, ok bool) {
	l, ok = d.(Lasting)
	return l, ok
}

// LastingMaker is the ability of a Lasting device whose memory is its own.
type LastingMaker interface {
	// LastingUnit returns the unit of the memory that MakeLasting allocates, in bytes; 0 if
	// AllocIn uses files of the host.
	LastingUnit() Size
	// MakeLasting allocates n bytes, rounded up to the unit, and returns their descriptor, for
	// AllocIn. The caller closes it. The memory counts as used once AllocIn has it, and is
	// freed with the last of all its descriptors and memories, in any process.
	MakeLasting(ctx context.Context, n Size) (*os.File, error)
}

// LastingMakerOf returns the ability of a device to make descriptors of its own memory; ok is
// false for a device that uses files of the host.
func LastingMakerOf(d Device) (m LastingMaker, ok bool) {
	m, ok = d.(LastingMaker)
	return m, ok && m.LastingUnit() != 0
}
