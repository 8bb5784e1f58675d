package members

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// replaceAttempts bounds how often our own old record may change under us.
const replaceAttempts = 5

// register sees to it that the service has our record, under a lease that
// lives. anew says that it had none. first is the time in Join: then a record
// of our own earlier incarnation is one to follow, and later only one that must
// not be newer than us.
func (m *Members) register(ctx context.Context, first bool) (anew bool, err error) {
	if lease, _, _ := m.Lease(); lease != nil {
		if err = m.check(ctx); err == nil || !errors.Is(err, coord.ErrLease) {
			return false, err
		}
		// The lease may have ended without our having been told.
		anew, err = m.occupy(ctx, lease, first, true)
		if err == nil || !errors.Is(err, coord.ErrLease) {
			return anew, err
		}
	}
	m.withdraw(ctx)
	lease, err := m.service.Grant(ctx, m.ttl)
	if err != nil {
		return false, fmt.Errorf("begin lease: %w", err)
	}
	if anew, err = m.occupy(ctx, lease, first, false); err != nil {
		// Best effort: it ends by itself.
		_ = lease.Revoke(context.WithoutCancel(ctx))
		return false, err
	}
	return anew, nil
}

// withdraw gives up our lease, and with it our record.
func (m *Members) withdraw(ctx context.Context) {
	lease, _, _ := m.Lease()
	m.dropLease()
	if lease != nil {
		// Best effort: it ends by itself.
		_ = lease.Revoke(context.WithoutCancel(ctx))
	}
}

// occupy makes the entry of our name ours, and the lease ours. anew says that
// there was no entry. held says that our record was bound to this lease.
func (m *Members) occupy(ctx context.Context, lease coord.Lease, first, held bool) (anew bool, err error) {
	for range replaceAttempts {
		entry, err := m.entry()
		if err != nil {
			return false, err
		}
		results, err := m.service.Create(ctx, []coord.Entry{entry}, lease)
		if err != nil {
			return false, fmt.Errorf("register: %w", err)
		}
		entry.Revision, err = results[0].Revision, results[0].Err
		anew = err == nil
		if errors.Is(err, coord.ErrExist) {
			if entry, err = m.follow(results[0].Found, first, held); err != nil {
				return false, err
			}
			entry.Revision, err = m.replace(ctx, results[0].Found, entry.Value, lease)
		}
		if err == nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.written = entry
			m.setLeaseLocked(lease)
			return anew, nil
		}
		if !errors.Is(err, coord.ErrChanged) {
			return false, fmt.Errorf("register: %w", err)
		}
	}
	return false, fmt.Errorf("register: %w", coord.ErrChanged)
}

// replace changes an entry that is as it was.
func (m *Members) replace(ctx context.Context, old coord.Entry, value []byte, lease coord.Lease) (coord.Revision, error) {
	old.Value = value
	results, err := m.service.Replace(ctx, []coord.Entry{old}, lease)
	if err != nil {
		return 0, err
	}
	return results[0].Revision, results[0].Err
}

// follow is our entry in the place of the one that was found, if that is an
// older one of ours. As long as the lease lives that our record was bound to, no
// node can have another one there: whatever it is, it was altered, and the service
// takes ours only under that lease.
func (m *Members) follow(found coord.Entry, first, held bool) (coord.Entry, error) {
	old, err := decode(found.Name, found.Value)
	m.mu.Lock()
	own := m.self.ID != "" && old.ID == m.self.ID
	if err == nil && own && first {
		m.self.Epoch = max(m.self.Epoch, old.Epoch+1)
	}
	self := m.self
	m.mu.Unlock()
	switch {
	case held && (err != nil || !own):
		m.logger.Warn("our record was altered in the service by something that is no node; it is written again",
			zap.String("found", coord.Shortened(string(found.Value))))
	case err != nil:
		return coord.Entry{}, fmt.Errorf("node %s is there, with a record that can't be read: %w", self.Name, ErrTaken)
	case own && old.Epoch > self.Epoch:
		return coord.Entry{}, fmt.Errorf("node %s was started again elsewhere, from the same state directory: %w", self.Name, ErrTaken)
	case !own:
		return coord.Entry{}, fmt.Errorf(
			"another node is called %s, at %s; if that one is dead its name is free when its lease has ended: %w",
			self.Name, strings.Join(old.Addresses, ", "), ErrTaken)
	}
	return m.entry()
}

// entry is our record as it is to be written.
func (m *Members) entry() (coord.Entry, error) {
	self := m.Self()
	value, err := encode(self)
	return coord.Entry{Name: prefix + string(self.Name), Value: value}, err
}

// checkRank refuses when another node has our rank. Two that come at one
// moment may both be refused.
func checkRank(self Name, all []coord.Entry) error {
	for _, e := range all {
		other, _ := nodeOf(e.Name)
		if other != self && other.Rank() == self.Rank() {
			return fmt.Errorf("node %s has the same rank as %s would have; use another name: %w", other, self, ErrTaken)
		}
	}
	return nil
}

// check sees to it that the service has our record as it is to be.
//
// Errors: coord.ErrLease when the record has to be made anew.
func (m *Members) check(ctx context.Context) error {
	m.mu.Lock()
	written, lease := m.written, m.lease
	m.mu.Unlock()
	found, err := m.service.Get(ctx, written.Name)
	if errors.Is(err, coord.ErrNotFound) || err == nil && found.Revision != written.Revision {
		return fmt.Errorf("our record is gone: %w", coord.ErrLease)
	}
	if err != nil {
		return err
	}
	entry, err := m.entry()
	if err != nil || string(entry.Value) == string(written.Value) {
		return err
	}
	entry.Revision, err = m.replace(ctx, written, entry.Value, lease)
	if errors.Is(err, coord.ErrChanged) {
		return fmt.Errorf("our record is gone: %w", coord.ErrLease)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.written = entry
	m.mu.Unlock()
	return m.mark(ctx)
}
