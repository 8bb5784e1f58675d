package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// fenceTTL is the lifetime of a fence that is no longer renewed: longer than a request can
// be in transit.
const fenceTTL = time.Hour

// fence is an entry on whose revision every write of a service is conditional. A failed
// write may still arrive; once the fence has a new revision it can't take effect.
type fence struct {
	key string

	mu sync.Mutex
	// revision is the revision of the entry; 0 while there is no entry.
	// +checklocks:mu
	revision int64
	// doubted is set while a write that depends on revision may still arrive.
	// +checklocks:mu
	doubted bool
	// moving is the running attempt to change the entry's revision; nil if there is none.
	// +checklocks:mu
	moving *move

	// lease binds the entry; 0 before the first attempt and after the lease has ended. Only
	// the running attempt accesses it.
	lease clientv3.LeaseID
}

// move is one attempt; err may be read once done is closed.
type move struct {
	done chan struct{}
	err  error
}

func newFence(prefix string) *fence { return &fence{key: prefix + "fence/" + rand.Text()} }

// current returns the revision on which a write must be conditional.
func (f *fence) current() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revision
}

// doubt records that a write conditional on a revision may still arrive.
func (f *fence) doubt(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doubted = f.doubted || f.revision == revision
}

// changed records that the entry's revision has changed from former to now. Writes that are
// conditional on former can't take effect any more.
func (f *fence) changed(former, now int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.revision == former && former != now {
		f.revision, f.doubted = now, false
	}
}

// begin returns the running attempt, starting one if there is none. It returns nil if no
// write may still arrive.
func (f *fence) begin(attempt func(*move)) *move {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.doubted && f.moving == nil {
		f.moving = &move{done: make(chan struct{})}
		go attempt(f.moving)
	}
	return f.moving
}

func (f *fence) end(m *move, err error) {
	f.mu.Lock()
	f.moving = nil
	f.mu.Unlock()
	m.err = err
	close(m.done)
}

// certain waits until no failed write can take effect any more.
//
// Errors: coord.ErrUnavailable and the others of coord; the context's.
func (s *Service) certain(ctx context.Context) error {
	m := s.fence.begin(func(m *move) {
		s.fence.end(m, s.moveFence(context.WithoutCancel(ctx)))
	})
	if m == nil {
		return nil
	}
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// moveFence gives the fence a new revision.
func (s *Service) moveFence(ctx context.Context) error {
	bounded, cancel := s.bound(ctx)
	defer cancel()
	former := s.fence.current()
	if s.fence.lease == 0 {
		l, err := s.client.Grant(bounded, int64(fenceTTL/time.Second))
		if err != nil {
			return s.fault(ctx, err)
		}
		s.fence.lease = l.ID
	}
	before := s.highest()
	resp, err := s.client.Put(bounded, s.fence.key, "", clientv3.WithLease(s.fence.lease))
	if err != nil {
		if err = s.fault(ctx, err); errors.Is(err, coord.ErrLease) {
			s.fence.lease = 0
			err = fmt.Errorf("%w: %w", coord.ErrUnavailable, err) // retried with a new lease
		}
		return err
	}
	s.observe(before, resp.Header)
	s.fence.changed(former, resp.Header.GetRevision())
	return nil
}

// write runs operations that put entries. If it fails, its effect is visible by the
// service's next answer or never.
func (s *Service) write(ctx context.Context, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	for {
		if err := s.certain(ctx); err != nil {
			return nil, err
		}
		revision := s.fence.current()
		resp, err := s.transact(ctx, clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.fence.key), "=", revision)},
			ops, []clientv3.Op{clientv3.OpGet(s.fence.key)}))
		switch {
		case errors.Is(err, coord.ErrLease):
			return nil, err
		case err != nil:
			s.fence.doubt(revision)
			return nil, err
		case resp.Succeeded:
			return resp, nil
		}
		// The fence was moved meanwhile, or was lost with its lease or with the cluster's
		// data.
		s.fence.changed(revision, fenceIn(resp))
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("write: %w", err)
		}
	}
}

// fenceIn returns the revision of the fence from a response, 0 if the fence is missing.
func fenceIn(resp *clientv3.TxnResponse) int64 {
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		return kv.ModRevision
	}
	return 0
}
