package arena

import "errors"

// ErrNotLeased is the answer to freeing, extending or resolving pages that
// nobody has leased.
var ErrNotLeased = errors.New("arena: not leased")
