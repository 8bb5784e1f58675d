package metadata

import "context"

// KV is the seam to an ordered key-value store. Keys are compared as bytes.
//
// All methods are safe for concurrent use, except that no method may be
// called once Close has begun; such a call answers ErrClosed where the
// implementation can still tell.
type KV interface {
	// View runs fn over an unchanging snapshot of the store: fn sees all of a
	// transaction that was committed before View began, and nothing of a later
	// one. fn must not write; Set and Delete answer ErrReadOnly.
	View(ctx context.Context, fn func(KVTxn) error) error

	// Update runs fn in a transaction and commits it when fn returns nil.
	// Transactions are serializable as far as they get, set, delete and scan
	// keys that exist: the outcome is that of running them one after the
	// other. A scan does not protect the gaps between the keys that it found,
	// so a caller that relies on the absence of a key gets that very key.
	//
	// On a conflict Update runs fn again, so fn must have no effect of its own
	// that is not overwritten by the next run. When fn fails, or the context
	// ends before the commit, nothing is written and the error is returned.
	// Once Update has returned nil the change outlives the death of the
	// process where the implementation keeps anything at all.
	//
	// Errors: ErrTooLarge when the transaction is larger than the store takes
	// at once; every store takes 8192 keys and 1 MiB of keys and values.
	// ErrNoSpace when nothing more can be written, not even what removes.
	Update(ctx context.Context, fn func(KVTxn) error) error

	// Close waits for nothing: the caller has seen all its transactions
	// return. It is called once.
	Close() error
}

// KVTxn is one transaction. It is used by one goroutine, and not after the
// function that received it has returned.
type KVTxn interface {
	// Get returns the value of the key as this transaction sees it, own writes
	// included. The slice belongs to the store, must not be modified, and
	// holds until the transaction ends.
	//
	// Errors: ErrNoKey when there is no such key.
	Get(key []byte) ([]byte, error)

	// Set writes a value. The store keeps both slices until the transaction
	// ends, so the caller leaves them alone.
	Set(key, value []byte) error

	// Delete removes a key. It is no error when there is none.
	Delete(key []byte) error

	// Scan calls fn with every key that begins with prefix and is not below
	// from, in ascending order, own writes included; a nil from starts at the
	// first. It ends when fn says that it wants no more, or fails. Both slices
	// hold until fn returns, and fn calls nothing of this transaction but Get.
	Scan(prefix, from []byte, fn func(key, value []byte) (more bool, err error)) error
}

// Roomer is implemented by a KV that shares the space of its records with others.
type Roomer interface {
	// Room answers ErrNoSpace when only what is kept for removals and for the end
	// is left. It may wait for the store to make room, and be called at any time
	// before Close.
	Room(ctx context.Context) error
}

// Cutter is implemented by a KV that can tell that its records are not all that there
// ever were.
type Cutter interface {
	// Cut reports that, at this start or an earlier one, something was cut from the
	// end of the records, or damaged records were brought back. Then bytes without a
	// record may be those of a file: they are kept, and not removed. It holds until
	// Settle.
	Cut() bool

	// Settle says that nothing is left that has no record, or that it is kept
	// elsewhere.
	Settle()
}
