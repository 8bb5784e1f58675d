package side

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// What ends a side connection.
var (
	// ErrStalled is a peer that does not answer for longer than the timeout.
	ErrStalled = errors.New("side: the peer does not go on")
	// ErrProtocol is a peer that answers what was not asked, or asks for more
	// than it may.
	ErrProtocol = errors.New("side: the peer breaks the protocol")
)

const (
	// MaxWindows bounds the windows of a peer that are open at once. A key
	// beyond it goes by the data connections.
	MaxWindows = 4096
	// maxUnsent is the frames that wait to be written before a peer counts as
	// one that does not read.
	maxUnsent = 4 * MaxWindows
)

// Options describe a side connection.
type Options struct {
	// Timeout is the time that the peer has for each answer.
	Timeout time.Duration
	Logger  *zap.Logger
}

// Side is the side connection of one session. All methods may be called from
// any goroutine.
type Side struct {
	conn     *control.Conn
	provider window.Provider
	opts     Options
	// windows are those of the peer that are open here. The map never changes
	// once published: it is replaced, under mu.
	windows atomic.Pointer[map[wire.Key]*opened]
	// closing is the number of those that are withdrawn and still used.
	closing atomic.Int32
	wake    chan struct{}
	running sync.WaitGroup
	end     sync.Once
	// stop is closed when the end begins, done when nothing runs any more.
	stop chan struct{}
	done chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	exports map[wire.Key]*export
	// +checklocks:mu
	unsent []message
	// +checklocks:mu
	cause error
}

// New starts the side connection, which it owns then, as it does the provider.
func New(c *control.Conn, p window.Provider, o Options) *Side {
	s := &Side{
		conn: c, provider: p, opts: o, wake: make(chan struct{}, 1), exports: map[wire.Key]*export{},
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	s.windows.Store(&map[wire.Key]*opened{})
	s.running.Go(s.read)
	s.running.Go(s.write)
	s.running.Go(func() {
		select {
		case <-p.Done():
			s.fail(p.Err())
		case <-s.stop:
		}
	})
	go s.bury()
	return s
}

// Provider is that of New.
func (s *Side) Provider() window.Provider { return s.provider }

// Done is closed when the side connection has ended and nothing of it runs.
func (s *Side) Done() <-chan struct{} { return s.done }

// Stopping is closed when the end begins.
func (s *Side) Stopping() <-chan struct{} { return s.stop }

// Err is why it has ended or ends; nil while it lives.
func (s *Side) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errLocked()
}

// +checklocks:s.mu
func (s *Side) errLocked() error {
	if s.cause == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %w", s.conn.Peer, control.ErrDisconnected, s.cause)
}

// Close ends the side connection, its provider, windows and exports, and waits
// until nothing of it runs.
func (s *Side) Close() {
	s.fail(errors.New("closed on this side"))
	<-s.done
}

// fail begins the end: the first cause counts.
func (s *Side) fail(cause error) {
	s.end.Do(func() {
		s.mu.Lock()
		s.cause = cause
		s.mu.Unlock()
		close(s.stop)
		// Its error is that of a connection that has ended already.
		_ = s.conn.Close()
	})
}

// bury gives back what is left when the end has begun.
func (s *Side) bury() {
	<-s.stop
	s.provider.Close()
	// Who waits for operations under a withdrawn key waits no more.
	s.running.Wait()
	s.mu.Lock()
	windows, exports := *s.windows.Load(), s.exports
	s.windows.Store(&map[wire.Key]*opened{})
	s.exports, s.unsent = nil, nil
	s.mu.Unlock()
	for key, w := range windows {
		s.closeWindow(key, w)
	}
	for key, e := range exports {
		s.closeExport(key, e)
	}
	close(s.done)
}

// read serves the peer until the end.
func (s *Side) read() {
	r := newReader(s.conn.Conn)
	for {
		f, err := r.next()
		if err == nil {
			err = s.dispatch(f)
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// write writes what is queued, until the end.
func (s *Side) write() {
	for {
		select {
		case <-s.wake:
		case <-s.stop:
			return
		}
		for {
			m, ok := s.next()
			if !ok {
				break
			}
			err := s.conn.SetWriteDeadline(time.Now().Add(s.opts.Timeout))
			if err == nil {
				err = m.write(s.conn.Conn)
			}
			if err != nil {
				s.fail(err)
				return
			}
		}
	}
}

func (s *Side) next() (message, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil || len(s.unsent) == 0 {
		return message{}, false
	}
	m := s.unsent[0]
	s.unsent[0] = message{}
	s.unsent = s.unsent[1:]
	return m, true
}

// sendLocked queues a frame. Its files must stay open until the peer has
// answered, or the end.
//
// +checklocks:s.mu
func (s *Side) sendLocked(m message) error {
	if s.cause != nil {
		return s.errLocked()
	}
	if len(s.unsent) >= maxUnsent {
		return fmt.Errorf("%d frames wait to be read by %s: %w", len(s.unsent), s.conn.Peer, ErrProtocol)
	}
	s.unsent = append(s.unsent, m)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// answer queues an answer to the peer.
func (s *Side) answer(frame []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sendLocked(message{frame: frame})
}

// withTimeout is the caller's context, bounded by the time that the peer has.
func (s *Side) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.opts.Timeout, ErrStalled)
}
