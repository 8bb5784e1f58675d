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

// Gather copies the blobs of each key, one behind the other, into an object of
// the host tier. Nobody sees an object before all its bytes are there; a
// replaced one goes in the same transaction.
//
// Errors by key: metadata.ErrExist with ExistingFail; devices.ErrOutOfMemory;
// ErrForbidden for replacing what the holder's user may not write.
func (h *Holder) Gather(ctx context.Context, set []Keyed, o GatherOptions) []Gathered {
	return make([]Gathered, len(set))
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

// Scatter copies a key's bytes into blobs: the i-th is filled from Offset on of
// the source's i-th. The source is in use until it returns, so that a removal
// of the key takes nothing away from it.
//
// Errors: metadata.ErrNotExist; *ShapeError; ErrLost; ErrForbidden for what the
// holder's user may not read.
func (h *Holder) Scatter(ctx context.Context, s Scatter) error { return notBuilt(ctx) }

// DropLocal removes what the holder itself has of keys: its replica, or what
// it has bound, where a replica of another holder takes its place. A key that
// it has nothing of is a success.
func (h *Holder) DropLocal(ctx context.Context, keys []string) []error {
	return make([]error, len(keys))
}

// Drop removes keys, with all replicas. An object in its device's directory of
// keyed objects goes; of any other file only the key is taken. A key that is
// not there is a success.
//
// Errors by key: ErrForbidden.
func (h *Holder) Drop(ctx context.Context, keys []string) []error {
	return make([]error, len(keys))
}

// KeyInfo is what is known of a key, or of a publication.
type KeyInfo struct {
	Attr Attr
	// Blobs are the sizes of the blobs, in order: those of user.hmc.blobs, or
	// the one that is the whole object.
	Blobs []uint64
}

// KeyInfo looks a key up.
//
// Errors: metadata.ErrNotExist, also for one that has expired; ErrForbidden for
// what the holder's user may not read.
func (h *Holder) KeyInfo(ctx context.Context, key string) (KeyInfo, error) {
	return KeyInfo{}, notBuilt(ctx)
}

// Expire sets when a key's object ends; zero is never. An object in the
// directory of keyed objects is removed then, any other file too.
//
// Errors: metadata.ErrNotExist; ErrForbidden.
func (h *Holder) Expire(ctx context.Context, key string, at metadata.Timespec) error {
	return notBuilt(ctx)
}

// AwaitKey returns when a key names an object whose bytes are there, or with
// the context's error.
func (s *Store) AwaitKey(ctx context.Context, key string) error { return notBuilt(ctx) }
