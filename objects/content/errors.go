package content

import "errors"

var (
	// errLost: the memory of the content is gone.
	ErrLost = errors.New("objects: content lost with its device's memory")
	// errNoData: no data at or behind the offset (lseek's ENXIO).
	ErrNoData = errors.New("objects: no data behind the offset")
	// errBusy: the memory is another process's, and its size is fixed.
	ErrBusy = errors.New("objects: memory is shared with another process")
	// errDamaged: a failed copy left unknown bytes here.
	ErrDamaged = errors.New("objects: bytes unknown after a failed device copy")
)
