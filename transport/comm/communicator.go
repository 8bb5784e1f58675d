package comm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/internal/pages"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Communicator is one rank. All methods may be called from any goroutine.
type Communicator struct {
	opts   Options
	log    *zap.Logger
	epochs control.Epochs
	table  *region.Table
	// pipes carry pages of files.
	pipes pages.Pool
	// routes are the transports, the fastest first.
	routes []route
	// requests holds those of Put and Get, for reuse.
	requests sync.Pool
	dials    atomic.Uint64
	// life ends with Close, and with it connections that are being made.
	life    context.Context //nolint:containedctx // it is the lifetime of the communicator, from New to Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu sync.RWMutex
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	listeners []*control.Listener
	// sessions holds the latest session with each peer, even if it has ended.
	// +checklocks:mu
	sessions map[wire.Rank]*session
	// handlers holds the handler of each port.
	// +checklocks:mu
	handlers map[wire.Port]Handler
	// changed is closed and replaced when a session becomes live or ends.
	// +checklocks:mu
	changed chan struct{}
}

// New makes a communicator without peers. Close ends it.
func New(o Options) (*Communicator, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Communicator{
		opts: o, log: o.Logger.Named("comm"), table: region.NewTable(o.Engine), routes: o.routes(),
		sessions: map[wire.Rank]*session{}, handlers: map[wire.Port]Handler{}, changed: make(chan struct{}),
	}
	c.requests.New = func() any { return newRequest() }
	c.life, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Rank returns our own rank.
func (c *Communicator) Rank() wire.Rank { return c.opts.Rank }

// Table returns the table in which the memory for puts and gets is registered.
func (c *Communicator) Table() *region.Table { return c.table }

// Stats counts a communicator's operations since it was made.
type Stats struct {
	// Dials is the number of connections that were made to peers; those that
	// peers made are not counted.
	Dials uint64 `json:"dials"`
}

// Stats returns a snapshot of the counters.
func (c *Communicator) Stats() Stats { return Stats{Dials: c.dials.Load()} }

// Peer describes a live session.
type Peer struct {
	Rank wire.Rank
	// Transport carries the bytes, and Because gives, for each faster one, the
	// reason why it is not used.
	Transport Transport
	Because   []string
	// Windows is the number of the peer's regions that are open here, so that
	// puts and gets bypass the data connections.
	Windows int
	// Remote is the address of the other end of the control connection; empty if
	// it has none.
	Remote string
	// Network is the network of the data connections.
	Network control.Network
	// Cover is the protection of all connections of the session.
	Cover wire.Cover
	// Channels is the number of data connections.
	Channels int
	// Chunk is the payload of one frame, in bytes.
	Chunk uint32
}

// Peers lists the live sessions, by rank.
func (c *Communicator) Peers() []Peer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []Peer
	for rank, s := range c.sessions {
		if s.state() == stateLive {
			windows := 0
			if s.side != nil {
				windows = s.side.Windows()
			}
			out = append(out, Peer{
				Rank: rank, Transport: Transport(s.took.route.id.String()), Because: slices.Clone(s.took.because), Windows: windows,
				Remote: s.control.RemoteAddr().String(), Network: control.Network(s.control.LocalAddr().Network()), Cover: s.control.Cover, Channels: len(s.channels), Chunk: s.control.Chunk,
			})
		}
	}
	slices.SortFunc(out, func(a, b Peer) int { return int(a.Rank) - int(b.Rank) })
	return out
}

// Listen accepts connections of peers at an address, in addition to earlier ones,
// and returns the address with the port that the kernel has chosen.
func (c *Communicator) Listen(ctx context.Context, at control.Address) (control.Address, error) {
	l, err := control.Listen(ctx, at, c.opts.control(&c.epochs), (*acceptor)(c))
	if err != nil {
		return control.Address{}, err
	}
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.listeners = append(c.listeners, l)
	}
	c.mu.Unlock()
	if closed {
		return control.Address{}, errors.Join(errClosed(), l.Close())
	}
	return l.Address(), nil
}

func errClosed() error { return fmt.Errorf("communicator: %w", ErrClosed) }

// announce notifies waiters that a session has changed its state.
func (c *Communicator) announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// Await waits until there is a live session with a peer.
//
// Errors: ErrClosed; the context's, which names the peer.
func (c *Communicator) Await(ctx context.Context, peer wire.Rank) error {
	_, err := c.await(ctx, peer, func(s *session) (bool, error) { return s != nil && s.state() == stateLive, nil })
	return err
}

// session finds the session with a peer. It waits for one that is being formed;
// one that has ended is returned.
func (c *Communicator) session(ctx context.Context, peer wire.Rank) (*session, error) {
	return c.await(ctx, peer, func(s *session) (bool, error) { return s.formed(peer) })
}

// await waits until the latest session with a peer, which is nil if there was
// none, is as needed, or can't become so.
func (c *Communicator) await(ctx context.Context, peer wire.Rank, ready func(s *session) (bool, error)) (*session, error) {
	for {
		c.mu.RLock()
		s, changed, closed := c.sessions[peer], c.changed, c.closed
		c.mu.RUnlock()
		if closed {
			return nil, errClosed()
		}
		if ok, err := ready(s); ok || err != nil {
			return s, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s to connect: %w", peer, ctx.Err())
		}
	}
}

// formed reports whether a session has been formed, even if it has ended since.
//
// Errors: ErrNotConnected if there is none, or if it has never been live.
func (s *session) formed(peer wire.Rank) (bool, error) {
	switch {
	case s != nil && s.state() == stateForming:
		return false, nil
	case s == nil || s.link == nil:
		return false, fmt.Errorf("%s: %w", peer, ErrNotConnected)
	}
	return true, nil
}

// Disconnect ends the session with a peer, notifies the peer, and waits until
// nothing of the session runs. Pending requests complete with an error.
//
// Errors: ErrNotConnected if there is no session.
func (c *Communicator) Disconnect(peer wire.Rank) error {
	c.mu.RLock()
	s := c.sessions[peer]
	c.mu.RUnlock()
	if s == nil || s.state() == stateEnded {
		return fmt.Errorf("disconnect %s: %w", peer, ErrNotConnected)
	}
	s.end(errors.New("disconnected by this side"))
	<-s.done
	return nil
}

// End ends one session, with a cause that all its waiters receive. It does not
// wait; a session that has ended already is left alone.
func (c *Communicator) End(in Origin, cause error) {
	if s, err := c.within(in); err == nil {
		s.end(cause)
	}
}

// Close ends every session and stops listening. When it returns, nothing of the
// communicator runs. Buffers stay registered until they are closed. Closing twice
// is harmless.
func (c *Communicator) Close() error {
	c.mu.Lock()
	already := c.closed
	c.closed = true
	listeners := c.listeners
	c.listeners = nil
	c.mu.Unlock()
	c.cancel()
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	if !already {
		c.announce()
	}
	c.mu.RLock()
	sessions := slices.Collect(maps.Values(c.sessions))
	c.mu.RUnlock()
	for _, s := range sessions {
		s.end(errClosed())
	}
	c.running.Wait()
	c.pipes.Close()
	if !already {
		errs = append(errs, closeRoutes(c.routes))
	}
	return errors.Join(errs...)
}
