package content

import (
	"context"
	"os"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/transport"
)

// Content holds an object's bytes. It knows ranges, not the size: the object says where
// its end is.
//
// Find and Usage may be called at any time. All other methods change the content, and
// their caller holds the object's lane.
//
// Bytes that were never written read as zeros. Every method fails with ErrLost when the
// device's memory is gone.
type Content interface {
	// Find returns the pieces of a range, in order and without gaps. Their memory
	// stays until Release is called. With sparse false, a hole inside a file may be
	// part of a piece.
	Find(off, n uint64, sparse bool) (Range, error)
	// Write copies src to off and returns the number of bytes written: all of them, or
	// those before an error.
	Write(ctx context.Context, off uint64, src transport.Span) (uint64, transport.Path, error)
	// Cut frees everything from size on.
	Cut(ctx context.Context, size uint64) error
	// Clear makes a range read as zeros. With keep it leaves the memory allocated,
	// otherwise it frees what it can.
	Clear(ctx context.Context, off, n uint64, keep bool) error
	// Reserve allocates memory for a range.
	Reserve(ctx context.Context, off, n uint64) error
	// Usage returns the allocated device memory in bytes.
	Usage() uint64
	// Settle frees memory that was allocated ahead of need, and returns the records of
	// the rest. size is the object's size in bytes.
	Settle(size uint64) []metadata.Mapping
	// Discard frees everything. The content is not used afterwards.
	Discard() error
	// Backing returns the host-tier file, or nil.
	Backing() *os.File
}

// Piece is a range of content that is contiguous in one memory, or a hole.
type Piece struct {
	Off  uint64 // in the object, in bytes
	N    uint64 // length in bytes
	Hole bool   // reads as zeros; the spans are empty
	Span transport.Span
	// Dev is the same range as device memory; zero for a file.
	Dev devices.Span
}

// Lost is the content of an object whose memory is gone: every method fails with ErrLost.
type Lost struct{}

// Find implements Content.
func (Lost) Find(uint64, uint64, bool) (Range, error) { return Range{}, ErrLost }

// Write implements Content.
func (Lost) Write(context.Context, uint64, transport.Span) (uint64, transport.Path, error) {
	return 0, "", ErrLost
}

// Cut implements Content.
func (Lost) Cut(context.Context, uint64) error { return ErrLost }

// Clear implements Content.
func (Lost) Clear(context.Context, uint64, uint64, bool) error { return ErrLost }

// Reserve implements Content.
func (Lost) Reserve(context.Context, uint64, uint64) error { return ErrLost }

// Usage implements Content.
func (Lost) Usage() uint64 { return 0 }

// Settle implements Content.
func (Lost) Settle(uint64) []metadata.Mapping { return nil }

// Discard implements Content.
func (Lost) Discard() error { return nil }

// Backing implements Content.
func (Lost) Backing() *os.File { return nil }
