package objects

import (
	"github.com/hmcfs/hmcfs/metadata"
)

// Keyed is a key and the memory that is meant by it: blobs in order, all on
// one device.
type Keyed struct {
	Key   string
	Blobs []Blob
}

// ExistingRule says what Gather does with a key that names an object already. A
// lost object always gives way.
type ExistingRule int

// The rules.
const (
	ExistingSkip ExistingRule = iota
	ExistingReplace
	ExistingFail
)

// GatherOptions are those of Gather.
type GatherOptions struct {
	Existing ExistingRule
	// Expires is the time at which the objects end; zero is never.
	Expires metadata.Timespec
}

// Gathered is the outcome for one key of Gather.
type Gathered struct {
	Skipped bool
	Err     error
}

// Scatter says which bytes of a key go where.
type Scatter struct {
	Keyed
	// Offset is the place where the bytes begin in each blob of the source.
	Offset uint64
	// Exact asks for blobs of just the source's sizes.
	Exact bool
	// Replica makes the blobs a source of the key.
	Replica bool
}
