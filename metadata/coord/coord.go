package coord

import (
	"context"
	"errors"
	"time"
)

// Errors that callers distinguish.
var (
	// ErrNotFound: no entry has the name.
	ErrNotFound = errors.New("coord: not found")
	// ErrExist: the name is already in use.
	ErrExist = errors.New("coord: name taken")
	// ErrChanged: the entry to be replaced has changed or no longer exists.
	ErrChanged = errors.New("coord: entry has changed in the meantime")
	// ErrUnavailable: the service does not answer.
	ErrUnavailable = errors.New("coord: service unreachable")
	// ErrCompacted: a watch needs history that the service has discarded.
	ErrCompacted = errors.New("coord: history has been compacted")
	// ErrLease: the lease has ended.
	ErrLease = errors.New("coord: lease has expired or was revoked")
	// ErrDenied: the service denies access.
	ErrDenied = errors.New("coord: access denied")
	// ErrClosed: the service or watch is closed.
	ErrClosed = errors.New("coord: closed")
)

// Revision counts the changes to all values. The revision of an Entry is that of the change
// that last wrote it.
type Revision int64

// Entry is one value.
type Entry struct {
	Name     string
	Value    []byte
	Revision Revision
}

// Result is the outcome for one name of a call on several.
type Result struct {
	// Revision is the revision of the written entry.
	Revision Revision
	// Found is the existing entry with that name; set only with ErrExist.
	Found Entry
	// Err is nil, ErrExist, ErrLease, ErrNotFound or ErrChanged.
	Err error
}

// Event is one change. The event of a deletion, by any client or by the end of a lease, has
// no value.
type Event struct {
	Entry
	Deleted bool
}

// Lease keeps alive the values bound to it. Its methods are safe for concurrent use.
type Lease interface {
	// Lost returns a channel that is closed when the service has ended the lease, or must
	// have ended it because it could not be reached for the lease's whole duration.
	Lost() <-chan struct{}
	// Revoke ends the lease and removes its values. A second Revoke is harmless.
	Revoke(ctx context.Context) error
}

// Watch delivers changes in order.
type Watch interface {
	// Next waits for the next changes, at least one.
	//
	// Errors: ErrCompacted, ErrUnavailable (the watch has ended and may be restarted after
	// the last revision seen), ErrClosed, the context's.
	Next(ctx context.Context) ([]Event, error)
	// Close ends the watch.
	Close()
}

// Service is the coordination service. Its methods are safe for concurrent use. Methods
// that block take a context, and none blocks longer than the implementation's own timeout.
// Every method may fail with ErrUnavailable, ErrDenied and ErrClosed.
type Service interface {
	// Grant creates a lease and keeps it alive. ttl is at least 1 s, in whole seconds.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)
	// Create writes each entry whose name does not exist yet, independently of the others,
	// in as few steps as the service allows. A nil lease means no lease. The results are in
	// the order of the entries. If the call itself fails, it returns only the results known
	// so far. The fate of the remaining entries is settled by the next answer of this
	// Service and does not change after that.
	Create(ctx context.Context, entries []Entry, l Lease) ([]Result, error)
	// Replace writes the value of each entry that still has its revision, and binds it to
	// the lease. Results are as for Create, with ErrChanged for all other entries.
	Replace(ctx context.Context, entries []Entry, l Lease) ([]Result, error)
	// Delete removes each entry that still has its revision; revision 0 matches any.
	// Results are as for Create; a missing entry is a success.
	Delete(ctx context.Context, entries []Entry) ([]Result, error)
	// Get reads one entry. Errors: ErrNotFound.
	Get(ctx context.Context, name string) (Entry, error)
	// List reads, in order, up to limit entries whose names begin with prefix and follow
	// the name after. It also returns the revision as of which the result holds.
	List(ctx context.Context, prefix, after string, limit int) ([]Entry, Revision, error)
	// Watch starts a watch, after a revision, of the names that begin with prefix. The
	// context bounds only the start. Discarded history may also be reported by the first
	// Next.
	//
	// Errors: ErrCompacted, also for a revision that does not exist yet, which means that
	// history was lost.
	Watch(ctx context.Context, prefix string, after Revision) (Watch, error)
	// Close ends all watches and stops renewing leases, without revoking them.
	Close() error
}
