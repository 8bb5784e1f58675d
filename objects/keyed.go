package objects

import (
	"github.com/hmcfs/hmcfs/metadata"
)

// Keyed is a key and the memory that it names or is copied from or to: blobs in order,
// all on one device.
type Keyed struct {
	Key   string
	Blobs []Blob
}

// ExistingRule says what Gather does with a key that names an object already. A lost
// object is always replaced.
type ExistingRule int

// The rules.
const (
	ExistingSkip ExistingRule = iota
	ExistingReplace
	ExistingFail
)

// GatherOptions are the options of Gather.
type GatherOptions struct {
	Existing ExistingRule
	// Expires is the time at which the objects expire; zero is never.
	Expires metadata.Timespec
}

// Gathered is the outcome for one key of Gather.
type Gathered struct {
	Skipped bool
	Err     error
}

// Scatter describes which bytes of a key are copied, and to which blobs.
type Scatter struct {
	Keyed
	// Offset is the offset in each blob of the source at which copying begins.
	Offset uint64
	// Exact requires the blobs to have exactly the sizes of the source's.
	Exact bool
	// Replica makes the blobs another source of the key.
	Replica bool
}
