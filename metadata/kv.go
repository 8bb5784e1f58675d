package metadata

import "context"

// KV is an ordered key-value store. Keys are compared as bytes.
//
// All methods are safe for concurrent use, except that no method may be called once Close
// has been called; such a call returns ErrClosed if the implementation can still detect it.
type KV interface {
	// View runs fn on an immutable snapshot of the store: fn sees every transaction that
	// was committed before View began completely, and nothing of later ones. fn must not
	// write; Set and Delete return ErrReadOnly.
	View(ctx context.Context, fn func(KVTxn) error) error

	// Update runs fn in a transaction and commits it when fn returns nil. Transactions are
	// serializable as far as they get, set, delete and scan existing keys: the outcome is
	// that of running them one after another. A scan does not protect the gaps between the
	// keys that it found, so a caller that relies on the absence of a key must get that
	// very key.
	//
	// On a conflict Update runs fn again, so any side effect of fn must be overwritten by
	// the next run. If fn fails, or the context ends before the commit, nothing is written
	// and the error is returned. Once Update has returned nil, the change survives the
	// death of the process if the implementation is persistent at all.
	//
	// Errors: ErrTooLarge if the transaction is larger than the store allows; every store
	// accepts 8192 keys and 1 MiB of keys and values. ErrNoSpace if nothing more can be
	// written, not even a removal.
	Update(ctx context.Context, fn func(KVTxn) error) error

	// Close does not wait for transactions: the caller ensures that all have returned. It
	// is called once.
	Close() error
}

// KVTxn is one transaction. It is used by one goroutine, and not after the function that
// received it has returned.
type KVTxn interface {
	// Get returns the value of the key as seen by this transaction, including its own
	// writes. The slice belongs to the store, must not be modified, and is valid until the
	// transaction ends.
	//
	// Errors: ErrNoKey if there is no such key.
	Get(key []byte) ([]byte, error)

	// Set writes a value. The store keeps both slices until the transaction ends, so the
	// caller must not modify them.
	Set(key, value []byte) error

	// Delete removes a key. A missing key is no error.
	Delete(key []byte) error

	// Scan calls fn with every key that begins with prefix and is not below from, in
	// ascending order, including the transaction's own writes; a nil from starts at the
	// first key. It ends when fn returns false or an error. Both slices are valid until fn
	// returns, and fn may call no method of this transaction but Get.
	Scan(prefix, from []byte, fn func(key, value []byte) (more bool, err error)) error
}

// Deferrer is implemented by a KV that can commit before it has written.
type Deferrer interface {
	// UpdateSoon is Update, but it may return before the change would survive the death of the
	// process. All transactions that begin later see the change, and none of theirs is written
	// before it. If the change can't be written after all, that is logged.
	UpdateSoon(ctx context.Context, fn func(KVTxn) error) error
}

// Roomer is implemented by a KV that shares the space of its records with other data.
type Roomer interface {
	// Room returns ErrNoSpace if only the space reserved for removals and for Close is
	// left. It may wait for the store to free space, and may be called at any time before
	// Close.
	Room(ctx context.Context) error
}

// Cutter is implemented by a KV that can detect that its records are not complete.
type Cutter interface {
	// Cut reports whether, at this start or an earlier one, something was cut from the end
	// of the records, or damaged records were restored. Bytes without a record may then
	// belong to a file, so they are kept and not removed. It remains set until Settle.
	Cut() bool

	// Settle records that nothing without a record is left, or that it is kept elsewhere.
	Settle()
}
