package members

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// Members is a View kept by a coordination service.
//
// One goroutine, run, makes all calls that wait for the service: it registers the node,
// lists and watches the others, and periodically checks whether all of that still holds. If
// not, it starts over.
type Members struct {
	*table
	service coord.Service
	ttl     time.Duration
	probe   time.Duration
	logger  *zap.Logger

	cancel context.CancelFunc
	done   chan struct{}
	// kick has room for one element, which asks run to check this node's record now.
	kick chan struct{}

	// strange records the entries that are not used.
	strange coord.Strange

	// Used by run only: nodes that may come back; whether this node has registered but not
	// listed since; and the last revision seen, which the watch's goroutine updates while
	// it runs.
	grace    grace
	unlisted bool
	seen     coord.Revision

	mu sync.Mutex
	// +checklocks:mu
	self Record
	// written is this node's record in the service; its revision is 0 if it is absent.
	// +checklocks:mu
	written coord.Entry
	// lease is the lease of this node's record, nil while the record is absent; leased is
	// closed and replaced when lease changes.
	// +checklocks:mu
	lease coord.Lease
	// +checklocks:mu
	leased chan struct{}
	// +checklocks:mu
	state State
}

var _ View = (*Members)(nil)

// Self returns this node's record; see View.
func (m *Members) Self() Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self.clone()
}

// Update changes this node's record: addresses, devices, version. Other nodes learn of it
// as soon as the service has the change.
func (m *Members) Update(change func(*Record)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next, err := changed(m.self, change)
	if err != nil {
		return err
	}
	if _, err = encode(next); err != nil {
		return err
	}
	m.self = next
	m.poke()
	return nil
}

// Met does nothing: only static views learn from met nodes; see View.
func (m *Members) Met(Record) {}

// State reports the state of the view; see View.
func (m *Members) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.state
	state.Unreadable = m.strange.Count()
	return state
}

// Lease returns the lease of this node's record and the node's epoch. Other entries of the
// node are bound to the lease too, so that they end with the node. The lease is nil while
// there is none, and is replaced after it was lost; the epoch stays the same as long as the
// process lives. changed is closed when the result changes.
func (m *Members) Lease() (l coord.Lease, epoch Epoch, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lease, m.self.Epoch, m.leased
}

// dropLease records that there is no lease any more.
func (m *Members) dropLease() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setLeaseLocked(nil)
}

// setLeaseLocked records a new lease, or nil.
//
// +checklocks:m.mu
func (m *Members) setLeaseLocked(l coord.Lease) {
	if l != m.lease {
		m.lease = l
		close(m.leased)
		m.leased = make(chan struct{})
	}
}

// poke asks run to check this node's record.
func (m *Members) poke() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// well records that the service answers and the view is current.
func (m *Members) well() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.state.UnreachableSince.IsZero() {
		m.logger.Info("service reachable again", zap.Time("unreachable since", m.state.UnreachableSince))
	}
	m.state.UnreachableSince, m.state.Problem = time.Time{}, ""
}

// unwell records why the view can't be kept current.
func (m *Members) unwell(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Problem = err.Error()
	if errors.Is(err, ErrTaken) {
		m.logger.Error("cannot join the cluster again", zap.Error(err))
		return
	}
	if m.state.UnreachableSince.IsZero() {
		m.state.UnreachableSince = time.Now()
		m.logger.Warn("service unreachable", zap.Error(err))
	}
}

// grace holds nodes that a service which has lost this node's record does not list either:
// they get time to register again.
type grace struct {
	// over fires when the time is up; nil while no node is awaited.
	over  <-chan time.Time
	nodes []Name
}

// replace changes the value of an entry that is still at its revision.
func (m *Members) replace(ctx context.Context, old coord.Entry, value []byte, lease coord.Lease) (coord.Revision, error) {
	old.Value = value
	results, err := m.service.Replace(ctx, []coord.Entry{old}, lease)
	if err != nil {
		return 0, err
	}
	return results[0].Revision, results[0].Err
}

// entry returns this node's record encoded for the service.
func (m *Members) entry() (coord.Entry, error) {
	self := m.Self()
	value, err := encode(self)
	return coord.Entry{Name: prefix + string(self.Name), Value: value}, err
}
