package members

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// page is the number of records listed per call; minBackoff is the shortest delay before a
// retry.
const (
	page       = 1000
	minBackoff = 50 * time.Millisecond
)

// Join makes this node a member, and returns once it is one and knows the other nodes. The
// context bounds only the joining.
//
// Errors: ErrName; ErrTaken for a name, or a rank, that another node has; those of coord.
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
	m.self.Epoch = firstEpoch(o.Self)
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

// Close ends the membership: it removes this node's record and mark, and all entries bound
// to the lease. The view keeps its last content. The context bounds the calls to the
// service; if they fail, the node lapses when its lease ends.
func (m *Members) Close(ctx context.Context) error {
	m.cancel()
	<-m.done
	lease, _, _ := m.Lease()
	if lease == nil {
		return nil
	}
	// Without its mark the node counts as having left, not as cut off.
	failure := m.unmark(ctx)
	m.dropLease()
	return errors.Join(failure, lease.Revoke(ctx))
}

// run maintains the membership and the view until the context ends.
func (m *Members) run(ctx context.Context, w coord.Watch) {
	defer close(m.done)
	wait := minBackoff
	for ctx.Err() == nil {
		var err error
		if w == nil {
			w, err = m.begin(ctx, false)
		}
		if err == nil {
			m.well()
			wait = minBackoff
			err = m.keep(ctx, w)
			w = nil
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, coord.ErrCompacted) {
			m.seen = 0
		}
		if errors.Is(err, coord.ErrLease) || errors.Is(err, coord.ErrCompacted) {
			m.logger.Info("joining the cluster again", zap.Error(err))
		} else {
			m.unwell(err)
		}
		m.pause(ctx, wait)
		wait = min(2*wait, max(m.ttl/3, minBackoff))
	}
}

// pause waits for a random time around about, so that many nodes don't come back at the
// same moment.
func (m *Members) pause(ctx context.Context, about time.Duration) {
	over := time.After(about/2 + rand.N(about))
	for {
		var lost <-chan struct{}
		if lease, _, _ := m.Lease(); lease != nil {
			lost = lease.Lost()
		}
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		case <-lost:
			m.dropLease()
		case <-m.grace.over:
			m.removeMissing()
		}
	}
}

// begin registers this node if necessary, and starts to watch the other nodes. A previous
// watch is resumed after the last revision seen, if no history was discarded since;
// otherwise all nodes are listed.
func (m *Members) begin(ctx context.Context, first bool) (coord.Watch, error) {
	anew, err := m.register(ctx, first)
	m.unlisted = m.unlisted || anew || first
	if err != nil {
		return nil, err
	}
	if !m.unlisted && m.seen != 0 {
		w, resumeErr := m.service.Watch(ctx, prefix, m.seen)
		if !errors.Is(resumeErr, coord.ErrCompacted) {
			return w, resumeErr
		}
	}
	entries, revision, err := m.list(ctx)
	if err != nil {
		return nil, err
	}
	if m.unlisted {
		if err = checkRank(m.Self().Name, entries); err != nil {
			m.withdraw(ctx)
			return nil, err
		}
	}
	w, err := m.service.Watch(ctx, prefix, revision)
	if err != nil {
		return nil, err
	}
	if err = m.mark(ctx); err != nil {
		w.Close()
		return nil, err
	}
	m.seen = revision
	m.forget()
	listed := make(map[Name]bool, len(entries))
	for _, e := range entries {
		name, mark := nodeOf(e.Name)
		if m.note(e) && !mark {
			listed[name] = true
		}
	}
	m.settle(m.missing(listed), revision)
	return w, nil
}

// settle completes begin. Nodes whose records are missing are gone or have lapsed, unless
// the service had lost this node's record: then it may have lost theirs too, and they get
// time to come back.
func (m *Members) settle(missing []Name, revision coord.Revision) {
	if m.unlisted {
		m.unlisted = false
		m.grace = grace{}
		if len(missing) > 0 {
			m.grace = grace{over: time.After(m.ttl), nodes: missing}
		}
	} else {
		for _, name := range missing {
			m.lapse(name, revision)
		}
	}
}

// list reads all records and returns the revision of the first page: a watch after it
// reports later changes again, which is harmless.
func (m *Members) list(ctx context.Context) ([]coord.Entry, coord.Revision, error) {
	var all []coord.Entry
	var first coord.Revision
	for after := ""; ; {
		entries, revision, err := m.service.List(ctx, prefix, after, page)
		if err != nil {
			return nil, 0, err
		}
		if after == "" {
			first = revision
		}
		for _, e := range entries {
			after = e.Name
			if m.belongs(e, len(all)) {
				all = append(all, e)
			}
		}
		if len(entries) < page {
			return all, first, nil
		}
	}
}

// maxListed bounds the records and marks kept from one listing.
const maxListed = 2*MaxNodes + page

// belongs reports whether to keep an entry of a listing of which so are kept already: a
// valid record or mark within the bound, or any entry of this node. Other entries are
// dropped, to bound memory.
func (m *Members) belongs(e coord.Entry, so int) bool {
	_, err := decode(strings.TrimSuffix(e.Name, markSuffix), e.Value)
	own, _ := nodeOf(e.Name)
	if err == nil && so >= maxListed {
		err = errFull
	}
	if own == m.Self().Name {
		return true // to be repaired by this node, whatever it is
	}
	if err != nil {
		m.strange.Found(m.logger, "ignoring an invalid record", e, err)
	}
	return err == nil
}

// note adds a record or a mark to the view, and reports whether it did. It skips this
// node's own entries and those that can't be decoded.
func (m *Members) note(e coord.Entry) bool {
	name, mark := nodeOf(e.Name)
	if name == m.Self().Name {
		return false
	}
	r, err := decode(strings.TrimSuffix(e.Name, markSuffix), e.Value)
	var refused []string
	if err == nil {
		refused = r.limitAddresses(m.Self().Addresses)
		if mark {
			err = m.setMark(r, e.Revision, len(e.Value))
		} else {
			err = m.set(r, e.Revision, len(e.Value))
		}
	}
	switch {
	case err != nil:
		m.strange.Found(m.logger, "ignoring an invalid record", e, err)
	case len(refused) > 0:
		m.strange.Found(m.logger, "ignoring invalid addresses of a record", e, fmt.Errorf("%q: %w", refused, errAddress))
	default:
		m.strange.Gone(e.Name)
	}
	return err == nil
}

// keep follows the watch and checks this node's record until either fails. It closes the
// watch.
func (m *Members) keep(ctx context.Context, w coord.Watch) error {
	ctx, cancel := context.WithCancel(ctx)
	watching := make(chan error)
	go func() {
		defer close(watching)
		err := m.watch(ctx, w)
		select {
		case watching <- err:
		case <-ctx.Done():
		}
	}()
	defer func() {
		cancel()
		w.Close()
		for range watching {
		}
	}()
	lease, _, _ := m.Lease()
	probe := time.NewTicker(m.probe)
	defer probe.Stop()
	for {
		select {
		case err := <-watching:
			return err
		case <-lease.Lost():
			m.dropLease()
			return coord.ErrLease
		case <-ctx.Done():
			return ctx.Err()
		case <-m.grace.over:
			m.removeMissing()
			continue
		case <-m.kick:
		case <-probe.C:
		}
		if err := m.check(ctx); err != nil {
			return err
		}
	}
}

// watch applies changes of other nodes to the view.
func (m *Members) watch(ctx context.Context, w coord.Watch) error {
	own := prefix + string(m.Self().Name)
	for {
		events, err := w.Next(ctx)
		if err != nil {
			return err
		}
		for _, ev := range events {
			m.seen = ev.Revision
			if ev.Deleted {
				m.strange.Gone(ev.Name)
			}
			name, mark := nodeOf(ev.Name)
			switch {
			case ev.Name == own:
				m.ownChanged(ev)
			case ev.Deleted && mark:
				m.dropMark(name, ev.Revision)
			case ev.Deleted:
				m.lapse(name, ev.Revision)
			default:
				m.note(ev.Entry)
			}
		}
	}
}

// ownChanged handles a change of this node's record: unless this node made the change, the
// record is checked.
func (m *Members) ownChanged(ev coord.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ev.Revision > m.written.Revision {
		m.poke()
	}
}

// removeMissing lapses the nodes that have not come back in time.
func (m *Members) removeMissing() {
	for _, name := range m.grace.nodes {
		if m.revisionOf(name) == 0 {
			m.lapse(name, 0)
		}
	}
	m.grace = grace{}
}
