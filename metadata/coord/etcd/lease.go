package etcd

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// lease is a coord.Lease.
type lease struct {
	service *Service
	id      clientv3.LeaseID
	// stop ends the renewal, after which lost is closed.
	stop context.CancelFunc
	lost chan struct{}
}

// Grant creates a lease; see coord.Service. Servers enforce a minimum TTL of their own,
// about two seconds.
func (s *Service) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	before := s.highest()
	resp, err := s.client.Grant(bounded, int64(max(ttl, time.Second)/time.Second))
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	s.observe(before, resp.ResponseHeader)
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	answers, err := s.client.KeepAlive(keeping, resp.ID)
	if err != nil {
		stop()
		return nil, s.fault(ctx, err)
	}
	l := &lease{service: s, id: resp.ID, stop: stop, lost: make(chan struct{})}
	go func() {
		defer stop()
		defer close(l.lost)
		// The library closes the channel when the server has reported the end of the lease,
		// or has not answered for the lease's duration.
		for range answers {
		}
	}()
	return l, nil
}

// Lost returns a channel that is closed when the lease ends; see coord.Lease.
func (l *lease) Lost() <-chan struct{} { return l.lost }

// Revoke ends the lease; see coord.Lease. If the server can't be reached, the lease is no
// longer renewed and expires.
func (l *lease) Revoke(ctx context.Context) error {
	l.stop()
	bounded, cancel := l.service.bound(ctx)
	defer cancel()
	_, err := l.service.client.Revoke(bounded, l.id)
	err = l.service.fault(ctx, err)
	if errors.Is(err, coord.ErrLease) {
		return nil
	}
	return err
}

// leaseOf returns the ID of a caller's lease, NoLease for nil, and false for a lease of
// another service.
func (s *Service) leaseOf(l coord.Lease) (clientv3.LeaseID, bool) {
	if l == nil {
		return clientv3.NoLease, true
	}
	own, ok := l.(*lease)
	if !ok || own.service != s {
		return 0, false
	}
	return own.id, true
}
