package arena

import "errors"

// ErrNotLeased reports an attempt to free, extend or resolve pages that are not leased.
var ErrNotLeased = errors.New("arena: not leased")

// ErrNoSlab reports a kept file that is not the slab whose name it has.
var ErrNoSlab = errors.New("arena: the file is no slab")
