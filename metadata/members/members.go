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
// One goroutine, run, does all that waits for the service: it registers the
// node, lists and watches the others, and looks again and again whether all of
// that still holds. Where it does not, it begins anew.
type Members struct {
	*table
	service coord.Service
	ttl     time.Duration
	probe   time.Duration
	logger  *zap.Logger

	cancel context.CancelFunc
	done   chan struct{}
	// kick has room for one: look at our own record now.
	kick chan struct{}

	// strange are the entries that are not used.
	strange coord.Strange

	// These belong to run: nodes that may come back; whether we have
	// registered without having listed since; the last revision that we have
	// seen, which the watch's goroutine counts while it runs.
	grace    grace
	unlisted bool
	seen     coord.Revision

	mu sync.Mutex
	// +checklocks:mu
	self Record
	// written is our record in the service; its revision is 0 if it is not
	// there.
	// +checklocks:mu
	written coord.Entry
	// lease is the one that our record is bound to, nil while it is not there;
	// leased is closed when that changes.
	// +checklocks:mu
	lease coord.Lease
	// +checklocks:mu
	leased chan struct{}
	// +checklocks:mu
	state State
}

var _ View = (*Members)(nil)

// Join makes this node a member and returns when it is one and knows the
// others. The context bounds that alone.
//
// Errors: ErrName; ErrTaken for a name, or a rank, that another node has; the
// errors of coord.
func Join(ctx context.Context, o Options) (*Members, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	m := &Members{
		table:   newTable(),
		service: o.Service,
		ttl:     o.TTL,
		probe:   o.Probe,
		logger:  o.Logger.Named("members"),
		done:    make(chan struct{}),
		kick:    make(chan struct{}, 1),
		leased:  make(chan struct{}),
		self:    o.Self.clone(),
		state:   State{Backend: o.Backend, Endpoints: o.Endpoints},
	}
	m.self.Epoch = nextEpoch(o.Self.Epoch)
	w, err := m.begin(ctx, true)
	if err != nil {
		m.withdraw(ctx)
		return nil, err
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.cancel = cancel
	go m.run(background, w)
	self := m.Self()
	m.logger.Info("joined", zap.String("node", string(self.Name)), zap.Uint64("epoch", uint64(self.Epoch)))
	return m, nil
}

// Self is our own record; see View.
func (m *Members) Self() Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self.clone()
}

// Update changes what our own record says: addresses, devices, version. The
// others hear of it as soon as the service does.
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

// Met is for static views; see View.
func (m *Members) Met(Record) {}

// State says how the view is doing; see View.
func (m *Members) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.state
	state.Unreadable = m.strange.Count()
	return state
}

// Lease returns the lease of our record at present, and our epoch. What else
// belongs to the node is bound to it too, so that it ends with the node. The
// lease is nil while there is none. Another one comes when that was lost; the
// epoch stays as long as the process does. changed is closed when the answer is
// another one.
func (m *Members) Lease() (l coord.Lease, epoch Epoch, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lease, m.self.Epoch, m.leased
}

// dropLease notes that there is no lease any more.
func (m *Members) dropLease() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setLeaseLocked(nil)
}

// setLeaseLocked notes another lease.
//
// +checklocks:m.mu
func (m *Members) setLeaseLocked(l coord.Lease) {
	if l != m.lease {
		m.lease = l
		close(m.leased)
		m.leased = make(chan struct{})
	}
}

// Close ends the membership: our record and our mark are gone, with all that was bound to
// the lease. The view stays as it was. The context bounds telling the service;
// a node that could not tell lapses when its lease ends.
func (m *Members) Close(ctx context.Context) error {
	m.cancel()
	<-m.done
	lease, _, _ := m.Lease()
	if lease == nil {
		return nil
	}
	// Without its mark the node has left, and is not one that was cut off.
	failure := m.unmark(ctx)
	m.dropLease()
	return errors.Join(failure, lease.Revoke(ctx))
}

// poke has our own record looked at.
func (m *Members) poke() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// well notes that the service answers and the view is right.
func (m *Members) well() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.state.UnreachableSince.IsZero() {
		m.logger.Info("service reachable again", zap.Time("unreachable since", m.state.UnreachableSince))
	}
	m.state.UnreachableSince, m.state.Problem = time.Time{}, ""
}

// unwell notes why the view can't be kept.
func (m *Members) unwell(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Problem = err.Error()
	if errors.Is(err, ErrTaken) {
		m.logger.Error("can't join again", zap.Error(err))
		return
	}
	if m.state.UnreachableSince.IsZero() {
		m.state.UnreachableSince = time.Now()
		m.logger.Warn("service unreachable", zap.Error(err))
	}
}
