package objects

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/objects/content"
)

// The errors that callers can distinguish, in addition to those of metadata and
// devices, which are passed on wrapped.
var (
	// ErrLost: the object's memory no longer exists.
	ErrLost = content.ErrLost
	// ErrUnsupported: the operation is not supported for this object.
	ErrUnsupported = errors.New("objects: not supported")
	// ErrInvalid: an argument is invalid.
	ErrInvalid = errors.New("objects: invalid argument")
	// ErrNoData: no data at or after the offset (lseek's ENXIO).
	ErrNoData = content.ErrNoData
	// ErrTooLarge: the size or offset is beyond the maximum of an object.
	ErrTooLarge = errors.New("objects: beyond the maximum size of an object")
	// ErrReadOnly: only hmcfs sets the attribute.
	ErrReadOnly = errors.New("objects: attribute can't be set")
	// ErrBusy: the memory is bound or exported, and the operation would take it away.
	ErrBusy = content.ErrBusy
	// ErrForbidden: the caller lacks the permission.
	ErrForbidden = errors.New("objects: not permitted for this user")
	// ErrInconsistent: the key was set, or published, with other blobs.
	ErrInconsistent = errors.New("objects: the key already has other blobs")
	// ErrWithdrawn: the publication was withdrawn before it was received.
	ErrWithdrawn = errors.New("objects: withdrawn before it was received")
	// ErrClosed: the queue, the holder or the store is closed.
	ErrClosed = errors.New("objects: closed")
	// ErrDamaged: a failed copy left unknown bytes here.
	ErrDamaged = content.ErrDamaged
)

// ShapeError reports that the blobs of a request don't fit those of their source.
type ShapeError struct {
	// Want are the sizes of the source's blobs, Got those of the request.
	Want, Got []uint64
	// Offset is the position, in each blob of the source, at which the request begins.
	Offset uint64
}

// Error describes both shapes.
func (e *ShapeError) Error() string {
	return fmt.Sprintf("objects: blobs don't match: the source has %s, the request has %s, from offset %d of each",
		shapeOf(e.Want), shapeOf(e.Got), e.Offset)
}

// shownBlobs bounds the number of sizes that an error message lists.
const shownBlobs = 8

func shapeOf(sizes []uint64) string {
	if len(sizes) <= shownBlobs {
		return fmt.Sprintf("%d blobs %v", len(sizes), sizes)
	}
	return fmt.Sprintf("%d blobs %v...", len(sizes), sizes[:shownBlobs])
}
