package etcd

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// keepaliveTime is the period of silence after which a connection is probed: the minimum
// that both etcd servers and the library allow.
const keepaliveTime = 10 * time.Second

// Service is a coord.Service.
type Service struct {
	client  *clientv3.Client
	prefix  string
	timeout time.Duration
	where   string // the endpoints, for error messages
	fence   *fence
	closed  atomic.Bool

	mu sync.Mutex
	// seen is the highest revision of any answer; cluster is the ID of the answering
	// cluster.
	// +checklocks:mu
	seen int64
	// +checklocks:mu
	cluster uint64
	// broken is closed, and replaced by a new channel, when history is lost.
	// +checklocks:mu
	broken chan struct{}
}

var _ coord.Service = (*Service)(nil)

// Open connects to a cluster. It returns once the cluster has answered.
//
// Errors: coord.ErrUnavailable, coord.ErrDenied, the context's.
func Open(ctx context.Context, o Options) (*Service, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Service{
		prefix:  o.Prefix,
		timeout: o.Timeout,
		where:   strings.Join(o.Endpoints, ", "),
		broken:  make(chan struct{}),
		fence:   newFence(o.Prefix),
	}
	var err error
	s.client, err = clientv3.New(clientv3.Config{
		Context:              context.WithoutCancel(ctx),
		Endpoints:            o.urls(),
		TLS:                  o.TLS,
		Username:             o.Username,
		Password:             o.Password,
		DialTimeout:          o.Timeout,
		DialKeepAliveTime:    keepaliveTime,
		DialKeepAliveTimeout: o.Timeout,
		// The library's default limit is 2 GiB.
		MaxCallRecvMsgSize: maxMessage,
		// The library would log every connection attempt to an unavailable cluster. The
		// user of the service reports that once.
		Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	if _, _, err = s.List(ctx, "", "", 1); err != nil {
		_ = s.client.Close() // its errors are about what has failed already
		return nil, err
	}
	return s, nil
}

// Close ends watches and stops renewing leases; see coord.Service.
func (s *Service) Close() error {
	if s.closed.Swap(true) {
		return coord.ErrClosed
	}
	// The only error is that the client's own context has been cancelled, by this call.
	_ = s.client.Close()
	return nil
}

// highest returns the revision below which no later answer may be.
func (s *Service) highest() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// brokenNow returns a channel that is closed when history is lost after this call.
func (s *Service) brokenNow() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// observe compares the revision of an answer with the highest one before the request.
func (s *Service) observe(before int64, h *pb.ResponseHeader) {
	if h == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := h.GetRevision() < before || s.cluster != 0 && h.GetClusterId() != s.cluster
	s.cluster = h.GetClusterId()
	if !lost {
		s.seen = max(s.seen, h.GetRevision())
		return
	}
	s.seen = h.GetRevision()
	close(s.broken)
	s.broken = make(chan struct{})
}

// bound adds the service's timeout to a call's context. The context also ends with the
// service: the library would keep retrying on a closed client.
func (s *Service) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	unhook := context.AfterFunc(s.client.Ctx(), cancel)
	return bounded, func() {
		unhook()
		cancel()
	}
}

// fault translates an error of the client library to one of coord. ctx is the caller's,
// without this package's own timeout.
func (s *Service) fault(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case s.closed.Load():
		return coord.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	// The cause is included as text only: our timeout must not look like the caller's.
	return fmt.Errorf("etcd at %s: %w: %s", s.where, meaning(err), err.Error())
}

func (s *Service) entry(kv *mvccpb.KeyValue) coord.Entry {
	return coord.Entry{
		Name:     string(kv.Key[len(s.prefix):]),
		Value:    bytes.Clone(kv.Value[:min(len(kv.Value), maxValue)]),
		Revision: coord.Revision(kv.ModRevision),
	}
}
