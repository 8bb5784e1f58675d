package objects

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/objects/content"
)

// What callers tell apart, beside the sentinels of metadata and devices,
// which pass through wrapped.
var (
	// ErrLost: the object's device memory is gone.
	ErrLost = content.ErrLost
	// ErrUnsupported: the operation does not exist for this object.
	ErrUnsupported = errors.New("objects: not supported")
	// ErrInvalid: an argument has no meaning here.
	ErrInvalid = errors.New("objects: invalid argument")
	// ErrNoData: no data at or behind the offset (lseek's ENXIO).
	ErrNoData = content.ErrNoData
	// ErrTooLarge: the size or offset is beyond what an object can have.
	ErrTooLarge = errors.New("objects: beyond the largest size of an object")
	// ErrReadOnly: the attribute is hmcfs's own to set.
	ErrReadOnly = errors.New("objects: attribute can't be set")
	// ErrBusy: the memory is bound or exported, and would be taken away.
	ErrBusy = content.ErrBusy
	// ErrForbidden: the caller is not entitled to the memory.
	ErrForbidden = errors.New("objects: not allowed to this user")
	// ErrInconsistent: the key was set, or published, with other blobs.
	ErrInconsistent = errors.New("objects: the key has other blobs already")
	// ErrWithdrawn: nobody received what was published.
	ErrWithdrawn = errors.New("objects: withdrawn before it was received")
	// ErrClosed: the queue, or the store, is closed.
	ErrClosed = errors.New("objects: closed")
	// ErrDamaged: a failed copy left unknown bytes here.
	ErrDamaged = content.ErrDamaged
)

// ShapeError says that the blobs of a request don't fit those of their source.
type ShapeError struct {
	// Want are the sizes of the source's blobs, Got those of the request.
	Want, Got []uint64
	// Offset is the place in each at which the request begins.
	Offset uint64
}

// Error tells both shapes.
func (e *ShapeError) Error() string {
	return fmt.Sprintf("objects: the source has %s, the request %s from offset %d of each on",
		shapeOf(e.Want), shapeOf(e.Got), e.Offset)
}

// shownBlobs bounds the sizes of a shape that are told.
const shownBlobs = 8

func shapeOf(sizes []uint64) string {
	if len(sizes) <= shownBlobs {
		return fmt.Sprintf("%d blobs %v", len(sizes), sizes)
	}
	return fmt.Sprintf("%d blobs %v and so on", len(sizes), sizes[:shownBlobs])
}
