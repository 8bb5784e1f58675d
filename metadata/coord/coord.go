package coord

import (
	"context"
	"errors"
	"time"
)

// What callers tell apart.
var (
	// ErrNotFound: nothing has that name.
	ErrNotFound = errors.New("coord: not found")
	// ErrExist: the name is taken.
	ErrExist = errors.New("coord: name taken")
	// ErrChanged: what was to be replaced is not there any more as it was.
	ErrChanged = errors.New("coord: changed meanwhile")
	// ErrUnavailable: the service does not answer.
	ErrUnavailable = errors.New("coord: service unreachable")
	// ErrCompacted: a watch wants what the service has forgotten.
	ErrCompacted = errors.New("coord: history forgotten")
	// ErrLease: the lease has ended.
	ErrLease = errors.New("coord: lease ended")
	// ErrDenied: the service refuses us.
	ErrDenied = errors.New("coord: access denied")
	// ErrClosed: closed.
	ErrClosed = errors.New("coord: closed")
)

// Revision counts the changes of all values. That of an Entry is the change
// that made it what it is.
type Revision int64

// Entry is one value.
type Entry struct {
	Name     string
	Value    []byte
	Revision Revision
}

// Result is the outcome for one name of a call on many.
type Result struct {
	// Revision is that of the entry that was made.
	Revision Revision
	// Found is the entry that has the name; only with ErrExist.
	Found Entry
	// Err is nil, ErrExist, ErrLease, ErrNotFound or ErrChanged.
	Err error
}

// Event is one change. Deleted ones, by any client or by the end of a lease,
// have no value.
type Event struct {
	Entry
	Deleted bool
}

// Lease keeps the values bound to it. Its methods may be called from any
// goroutine.
type Lease interface {
	// Lost is closed when the service has ended the lease, or must have: it
	// could not be told for as long as the lease lasts.
	Lost() <-chan struct{}
	// Revoke ends the lease and removes its values. Revoking twice is harmless.
	Revoke(ctx context.Context) error
}

// Watch delivers changes in order.
type Watch interface {
	// Next waits for the next changes, at least one.
	//
	// Errors: ErrCompacted, ErrUnavailable (the watch is over and may be begun
	// again behind the last revision seen), ErrClosed, the context's.
	Next(ctx context.Context) ([]Event, error)
	// Close ends the watch.
	Close()
}

// Service is the coordination service. Its methods may be called from any
// goroutine; those that wait take a context, and none waits for longer than
// the implementation's own time limit. Every method may fail with
// ErrUnavailable, ErrDenied and ErrClosed.
type Service interface {
	// Grant begins a lease and keeps it. ttl is at least 1 s, in whole seconds.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)
	// Create makes each entry that has no name yet, each on its own, in as
	// few steps as the service allows. A nil lease is none. The results have
	// the order of the entries. With an error of the call itself there are as
	// many results as are known. What becomes of the other entries is known from
	// the next answer of this Service: it does not change after that.
	Create(ctx context.Context, entries []Entry, l Lease) ([]Result, error)
	// Replace writes the value of each entry that still has its revision, and
	// binds it to the lease. Results as with Create: ErrChanged for all others.
	Replace(ctx context.Context, entries []Entry, l Lease) ([]Result, error)
	// Delete removes each entry that still has its revision; revision 0 is
	// any. Results as with Create: what is not there is a success.
	Delete(ctx context.Context, entries []Entry) ([]Result, error)
	// Get reads one entry. Errors: ErrNotFound.
	Get(ctx context.Context, name string) (Entry, error)
	// List reads up to limit entries that begin with prefix, behind the name
	// after, in order, and the revision as of which that is.
	List(ctx context.Context, prefix, after string, limit int) ([]Entry, Revision, error)
	// Watch begins a watch of what begins with prefix, behind a revision. The
	// context bounds the beginning alone. What is forgotten may be told by the
	// first Next, too.
	//
	// Errors: ErrCompacted, also for a revision that has not been: history was
	// lost.
	Watch(ctx context.Context, prefix string, after Revision) (Watch, error)
	// Close ends all watches and stops keeping leases, which are not revoked.
	Close() error
}
