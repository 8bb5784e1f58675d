package objects

import (
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/transport"
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
	// Burst makes the copy together with those of other Scatters, if it has begun; nil for none.
	Burst *Burst
}

// Burst makes the copies of many Scatters that one goroutine makes one after the other, which takes less time for small keys. The
// zero value is ready to use, and may be used again after End.
type Burst struct{ copies transport.Burst }

// Begin prepares for Scatters of a holder, after which End must follow.
func (b *Burst) Begin(h *Holder) { b.copies.Begin(h.store.table.engine) }

// End ends what Begin has prepared for. It does nothing without Begin.
func (b *Burst) End() {
	if b != nil {
		b.copies.End()
	}
}

// begun returns what makes copies; nil if each is made for itself.
func (b *Burst) begun() *transport.Burst {
	if b == nil || !b.copies.Begun() {
		return nil
	}
	return &b.copies
}
