package etcd

import (
	"context"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// keepaliveTime is after how much silence a connection is asked for a sign of
// life: the least that etcd servers and the library allow for both.
const keepaliveTime = 10 * time.Second

// Service is a coord.Service.
type Service struct {
	client  *clientv3.Client
	prefix  string
	timeout time.Duration
	where   string // the endpoints, for errors
	fence   *fence

	mu sync.Mutex
	// seen is the highest revision of any answer, and cluster who gave it.
	// +checklocks:mu
	seen int64
	// +checklocks:mu
	cluster uint64
	// broken is closed when history is lost, and is another one then.
	// +checklocks:mu
	broken chan struct{}
	// +checklocks:mu
	closed bool
}

var _ coord.Service = (*Service)(nil)

// Open connects to a cluster. It returns when the cluster has answered.
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
		// The library's own bound is 2 GiB.
		MaxCallRecvMsgSize: maxMessage,
		// It would log every attempt at a cluster that is away. Whoever
		// uses the service says so, once.
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

// Close ends watches and keeps leases no more; see coord.Service.
func (s *Service) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return coord.ErrClosed
	}
	// What it says is that its context has been cancelled: by itself.
	_ = s.client.Close()
	return nil
}

func (s *Service) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// highest is the revision that no later answer may be below.
func (s *Service) highest() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// brokenNow returns a channel that is closed when history is lost from now on.
func (s *Service) brokenNow() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// observe compares an answer with what was there before its question.
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

// bound gives a call its time limit. It ends with the service, too: the library
// would try again on what is closed.
func (s *Service) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	unhook := context.AfterFunc(s.client.Ctx(), cancel)
	return bounded, func() {
		unhook()
		cancel()
	}
}
