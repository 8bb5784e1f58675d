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
	"github.com/hmcfs/hmcfs/transport/internal/queue"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Causes of the end of a side connection.
var (
	// ErrStalled reports a peer that does not answer within the timeout.
	ErrStalled = errors.New("side: the peer does not respond")
	// ErrProtocol reports a peer that answers a question that was not asked, or
	// exceeds a limit.
	ErrProtocol = errors.New("side: the peer violates the protocol")
)

const (
	// MaxWindows bounds the windows of a peer that are open at once. Further keys
	// use the data connections.
	MaxWindows = 4096
	// maxUnsent is the number of unwritten frames at which a peer is considered
	// not to read.
	maxUnsent = 4 * MaxWindows
)

// Options configures a side connection.
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
	// windows holds the peer's windows that are open here. The map never changes
	// once published: it is replaced, under mu.
	windows atomic.Pointer[map[wire.Key]*opened]
	// closing is the number of windows that are withdrawn and still in use.
	closing atomic.Int32
	wake    chan struct{}
	running sync.WaitGroup
	// life ends when the end starts, with its cause, while mu is held; done is closed
	// when nothing runs any more.
	life context.Context //nolint:containedctx // it is the lifetime of the connection, from New to its end
	kill context.CancelCauseFunc
	done chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	exports map[wire.Key]*export
	// +checklocks:mu
	unsent queue.Queue[message]
}

// New starts the side connection, and takes ownership of it and of the provider.
func New(c *control.Conn, p window.Provider, o Options) *Side {
	s := &Side{
		conn: c, provider: p, opts: o, wake: make(chan struct{}, 1), exports: map[wire.Key]*export{}, done: make(chan struct{}),
	}
	s.life, s.kill = context.WithCancelCause(context.Background())
	s.windows.Store(&map[wire.Key]*opened{})
	s.running.Go(s.read)
	s.running.Go(s.write)
	s.running.Go(func() {
		select {
		case <-p.Done():
			s.fail(p.Err())
		case <-s.life.Done():
		}
	})
	go s.bury()
	return s
}

// Provider returns the provider that New received.
func (s *Side) Provider() window.Provider { return s.provider }

// Done is closed when the side connection has ended and nothing of it runs.
func (s *Side) Done() <-chan struct{} { return s.done }

// Stopping is closed when the end starts.
func (s *Side) Stopping() <-chan struct{} { return s.life.Done() }

// Err returns the cause of the end; nil while it is alive.
func (s *Side) Err() error { return control.Disconnected(s.conn.Peer, context.Cause(s.life)) }

// Close ends the side connection, its provider, windows and exports, and waits
// until nothing of it runs.
func (s *Side) Close() {
	s.fail(errors.New("closed on this side"))
	<-s.done
}

// fail starts the end: the first cause is kept.
func (s *Side) fail(cause error) {
	s.mu.Lock()
	s.kill(cause)
	s.mu.Unlock()
	// Its error is that of a connection that has ended already.
	_ = s.conn.Close()
}

// bury releases everything that is left once the end has started.
func (s *Side) bury() {
	<-s.life.Done()
	s.provider.Close()
	// Goroutines that wait for operations under a withdrawn key stop waiting now.
	s.running.Wait()
	s.mu.Lock()
	windows, exports := *s.windows.Load(), s.exports
	s.windows.Store(&map[wire.Key]*opened{})
	s.exports = nil
	s.unsent.Drain()
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
		case <-s.life.Done():
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
	if s.life.Err() != nil || s.unsent.Empty() {
		return message{}, false
	}
	return s.unsent.Pop(), true
}

// sendLocked queues a frame. Its files must stay open until the peer has
// answered, or the side connection has ended.
//
// +checklocks:s.mu
func (s *Side) sendLocked(m message) error {
	if err := s.Err(); err != nil {
		return err
	}
	if s.unsent.Len() >= maxUnsent {
		return fmt.Errorf("%d frames are not yet read by %s: %w", s.unsent.Len(), s.conn.Peer, ErrProtocol)
	}
	s.unsent.Push(m)
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
