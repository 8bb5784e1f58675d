package content

import "errors"

// Package objects returns these under its own names.
var (
	// ErrLost: the memory of the content is gone.
	ErrLost = errors.New("objects: content lost, because its memory no longer exists")
	// ErrNoData: no data at or behind the offset (lseek's ENXIO).
	ErrNoData = errors.New("objects: no data at or after the offset")
	// ErrBusy: the memory belongs to another process, and its size is fixed.
	ErrBusy = errors.New("objects: memory is shared with another process")
	// ErrDamaged: a failed copy left unknown bytes here.
	ErrDamaged = errors.New("objects: content unknown after a failed device copy")
)
