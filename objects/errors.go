package objects

import "errors"

// What callers tell apart, beside the sentinels of metadata and devices,
// which pass through wrapped.
var (
	// ErrLost: the object's device memory is gone.
	ErrLost = errors.New("objects: content lost with its device's memory")
	// ErrUnsupported: the operation does not exist for this object.
	ErrUnsupported = errors.New("objects: not supported")
	// ErrInvalid: an argument has no meaning here.
	ErrInvalid = errors.New("objects: invalid argument")
	// ErrNoData: no data at or behind the offset (lseek's ENXIO).
	ErrNoData = errors.New("objects: no data behind the offset")
	// ErrTooLarge: the size or offset is beyond what an object can have.
	ErrTooLarge = errors.New("objects: beyond the largest size of an object")
	// ErrReadOnly: the attribute is hmcfs's own to set.
	ErrReadOnly = errors.New("objects: attribute can't be set")
	// ErrBusy: the memory is bound or exported, and would be taken away.
	ErrBusy = errors.New("objects: memory is shared with another process")
	// ErrForbidden: the caller is not entitled to the memory.
	ErrForbidden = errors.New("objects: not allowed to this user")
	// ErrDamaged: a failed copy left unknown bytes here.
	ErrDamaged = errors.New("objects: bytes unknown after a failed device copy")
)
