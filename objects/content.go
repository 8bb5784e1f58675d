package objects

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
type content interface {
	// find tells what a range is made of, in order and without gaps. The
	// memory of the pieces stays until release, whatever happens meanwhile.
	// With sparse false a hole inside a file may be part of a piece.
	find(off, n uint64, sparse bool) (pieces []piece, release func(), err error)
	// write copies src to off and returns how many bytes are there now: all
	// of them, or those before an error.
	write(ctx context.Context, off uint64, src transport.Span) (uint64, transport.Path, error)
	// cut gives back everything from size on.
	cut(ctx context.Context, size uint64) error
	// clear makes a range read as zeros. It keeps the memory, or gives back
	// what it can.
	clear(ctx context.Context, off, n uint64, keep bool) error
	// reserve takes memory for a range.
	reserve(ctx context.Context, off, n uint64) error
	// usage is the device memory taken, in bytes.
	usage() uint64
	// settle gives back memory that was taken ahead of need, and returns the
	// records of the rest.
	settle(size uint64) []metadata.Mapping
	// discard gives everything back. The content is not used afterwards.
	discard() error
	// backing is the host-tier file, or nil.
	backing() *os.File
}

// piece is a stretch of content in one place.
type piece struct {
	off  uint64 // in the object
	n    uint64
	hole bool // reads as zeros; the spans are empty
	span transport.Span
	// dev is the same place for a device that can be mapped.
	dev devices.Span
}

// lost is the content of an object whose device memory is gone.
type lost struct{}

func (lost) find(uint64, uint64, bool) ([]piece, func(), error) { return nil, nil, errLost }

func (lost) write(context.Context, uint64, transport.Span) (uint64, transport.Path, error) {
	return 0, "", errLost
}

func (lost) cut(context.Context, uint64) error                 { return errLost }
func (lost) clear(context.Context, uint64, uint64, bool) error { return errLost }
func (lost) reserve(context.Context, uint64, uint64) error     { return errLost }
func (lost) usage() uint64                                     { return 0 }
func (lost) settle(uint64) []metadata.Mapping                  { return nil }
func (lost) discard() error                                    { return nil }
func (lost) backing() *os.File                                 { return nil }
