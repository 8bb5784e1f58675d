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
	// stop ends the keeping, and with it lost is closed.
	stop context.CancelFunc
	lost chan struct{}
}

// Grant begins a lease; see coord.Service. Servers have a least time of their
// own, about two seconds.
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
		// The library closes it when the server has said that the lease is
		// over, or has said nothing for as long as it lasts.
		for range answers {
		}
	}()
	return l, nil
}

// Lost is closed with the end of the lease; see coord.Lease.
func (l *lease) Lost() <-chan struct{} { return l.lost }

// Revoke ends the lease; see coord.Lease. If the server can't be told, the
// lease is kept no more, and ends by itself.
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

// leaseOf says which lease a caller means; false for one that is not ours. The
// one of nil is none.
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
