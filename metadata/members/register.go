package members

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// replaceAttempts bounds how often this node's old record may change during registration.
const replaceAttempts = 5

// register ensures that the service has this node's record, under a live lease. anew
// reports that the service had no record. first is set during Join: only then does a record
// of an earlier incarnation raise this node's epoch; later a record with a newer epoch than
// this node's is an error.
func (m *Members) register(ctx context.Context, first bool) (anew bool, err error) {
	if lease, _, _ := m.Lease(); lease != nil {
		if err = m.check(ctx); err == nil || !errors.Is(err, coord.ErrLease) {
			return false, err
		}
		// The lease may have ended without notice.
		anew, err = m.occupy(ctx, lease, first, true)
		if err == nil || !errors.Is(err, coord.ErrLease) {
			return anew, err
		}
	}
	m.withdraw(ctx)
	lease, err := m.service.Grant(ctx, m.ttl)
	if err != nil {
		return false, fmt.Errorf("create lease: %w", err)
	}
	if anew, err = m.occupy(ctx, lease, first, false); err != nil {
		// Best effort: the lease expires.
		_ = lease.Revoke(context.WithoutCancel(ctx))
		return false, err
	}
	return anew, nil
}

// withdraw gives up the lease, and with it this node's record.
func (m *Members) withdraw(ctx context.Context) {
	lease, _, _ := m.Lease()
	m.dropLease()
	if lease != nil {
		// Best effort: the lease expires.
		_ = lease.Revoke(context.WithoutCancel(ctx))
	}
}

// occupy writes this node's record under the given lease, and adopts that lease. anew
// reports that there was no entry. held is set if the record was bound to this lease
// before.
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

// follow returns this node's entry to replace the one found, if that is an older one of
// this node. As long as the lease of this node's record lives (held), no other node can
// have an entry there: a foreign entry means that the record was altered, and the service
// accepts a replacement only under that lease.
func (m *Members) follow(found coord.Entry, first, held bool) (coord.Entry, error) {
	old, err := decode(found.Name, found.Value)
	m.mu.Lock()
	own := m.self.ID != "" && old.ID == m.self.ID
	if err == nil && own && first && (m.self.Life == 0 || old.Epoch > m.self.Epoch) {
		m.self.Epoch, m.self.Life = max(m.self.Epoch, old.Epoch+1), 0
	}
	self := m.self
	m.mu.Unlock()
	switch {
	case held && (err != nil || !own):
		m.logger.Warn("a client that is not a node has altered this node's record in the service; writing it again",
			zap.String("found", coord.Shortened(string(found.Value))))
	case err != nil:
		return coord.Entry{}, fmt.Errorf("the service has a record of node %s that cannot be decoded: %w", self.Name, ErrTaken)
	case own && old.Epoch > self.Epoch:
		return coord.Entry{}, fmt.Errorf("node %s has been started elsewhere from the same state directory: %w", self.Name, ErrTaken)
	case !own:
		return coord.Entry{}, fmt.Errorf(
			"another node named %s exists, at %s; if it is dead, its name becomes free when its lease expires: %w",
			self.Name, strings.Join(old.Addresses, ", "), ErrTaken)
	}
	return m.entry()
}

// checkRank returns an error if another node has this node's rank. Of two nodes that join
// at the same time both may be refused.
func checkRank(self Name, all []coord.Entry) error {
	for _, e := range all {
		other, _ := nodeOf(e.Name)
		if other != self && other.Rank() == self.Rank() {
			return fmt.Errorf("node %s already has the rank that the name %s yields; use another name: %w", other, self, ErrTaken)
		}
	}
	return nil
}

// check ensures that the service has this node's current record.
//
// Errors: coord.ErrLease when the record has to be created again.
func (m *Members) check(ctx context.Context) error {
	m.mu.Lock()
	written, lease := m.written, m.lease
	m.mu.Unlock()
	found, err := m.service.Get(ctx, written.Name)
	if errors.Is(err, coord.ErrNotFound) || err == nil && found.Revision != written.Revision {
		return fmt.Errorf("this node's record was removed or replaced: %w", coord.ErrLease)
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
		return fmt.Errorf("this node's record was removed or replaced: %w", coord.ErrLease)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.written = entry
	m.mu.Unlock()
	return m.mark(ctx)
}
