package content

import (
	"context"
	"os"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/transport"
)

// content has an object's bytes. It knows ranges, not sizes: the
// object says where its end is.
//
// find and usage may be called at any time. All others change the content,
// and the caller has the object's lane.
//
// What is not there reads as zeros. Every method fails with errLost when the
// device's memory is gone.
type Content interface {
	// find tells what a range is made of, in order and without gaps. The
	// memory of the pieces stays until release, whatever happens meanwhile.
	// With sparse false a hole inside a file may be part of a piece.
	Find(off, n uint64, sparse bool) (pieces []Piece, release func(), err error)
	// write copies src to off and returns how many bytes are there now: all
	// of them, or those before an error.
	Write(ctx context.Context, off uint64, src transport.Span) (uint64, transport.Path, error)
	// cut gives back everything from size on.
	Cut(ctx context.Context, size uint64) error
	// clear makes a range read as zeros. It keeps the memory, or gives back
	// what it can.
	Clear(ctx context.Context, off, n uint64, keep bool) error
	// reserve takes memory for a range.
	Reserve(ctx context.Context, off, n uint64) error
	// usage is the device memory taken, in bytes.
	Usage() uint64
	// settle gives back memory that was taken ahead of need, and returns the
	// records of the rest.
	Settle(size uint64) []metadata.Mapping
	// discard gives everything back. The content is not used afterwards.
	Discard() error
	// backing is the host-tier file, or nil.
	Backing() *os.File
}

// piece is a stretch of content in one place.
type Piece struct {
	Off  uint64 // in the object
	N    uint64
	Hole bool // reads as zeros; the spans are empty
	Span transport.Span
	// dev is the same place for a device that can be mapped.
	Dev devices.Span
}

// lost is the content of an object whose device memory is gone.
type Lost struct{}

func (Lost) Find(uint64, uint64, bool) ([]Piece, func(), error) { return nil, nil, ErrLost }

func (Lost) Write(context.Context, uint64, transport.Span) (uint64, transport.Path, error) {
	return 0, "", ErrLost
}

func (Lost) Cut(context.Context, uint64) error                 { return ErrLost }
func (Lost) Clear(context.Context, uint64, uint64, bool) error { return ErrLost }
func (Lost) Reserve(context.Context, uint64, uint64) error     { return ErrLost }
func (Lost) Usage() uint64                                     { return 0 }
func (Lost) Settle(uint64) []metadata.Mapping                  { return nil }
func (Lost) Discard() error                                    { return nil }
func (Lost) Backing() *os.File                                 { return nil }
