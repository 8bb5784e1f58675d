package arena

import "errors"

// ErrNotLeased reports an attempt to free, extend or resolve pages that are not leased.
var ErrNotLeased = errors.New("arena: not leased")
