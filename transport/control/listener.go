package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// Handler decides about authenticated peers. Its methods are called from several
// goroutines.
type Handler interface {
	// Admit answers a HELLO: with the session of an accepted connection, a new
	// one for the control connection, or with a refusal.
	Admit(h wire.Hello) (wire.Session, *wire.Refusal)
	// Serve takes ownership of an accepted connection. It must not wait for the
	// peer.
	Serve(c *Conn)
}

// Listener accepts the connections of peers until Close.
type Listener struct {
	opts    Options
	handler Handler
	socket  net.Listener
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex
	// +checklocks:mu
	handshakes candidates
}

// Listen listens at the address. The file of a Unix socket that a dead process
// has left is replaced; a socket on which another process listens is an error.
func Listen(ctx context.Context, at Address, o Options, h Handler) (*Listener, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	socket, err := open(ctx, at, o.Timeout)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", at, err)
	}
	l := &Listener{opts: o, handler: h, socket: socket, handshakes: candidates{most: o.MaxHandshakes}}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l.cancel = cancel
	l.running.Go(func() { l.run(life) })
	return l, nil
}

func open(ctx context.Context, at Address, limit time.Duration) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive(limit)}
	socket, err := lc.Listen(ctx, string(at.Network), at.Addr)
	if at.Network != Unix {
		return socket, err
	}
	if errors.Is(err, unix.EADDRINUSE) {
		probe, alive := net.DialTimeout(string(Unix), at.Addr, time.Second)
		switch {
		case alive == nil:
			return nil, errors.Join(err, probe.Close())
		case !errors.Is(alive, unix.ECONNREFUSED):
			return nil, err
		}
		if err = os.Remove(at.Addr); err != nil {
			return nil, err
		}
		socket, err = lc.Listen(ctx, string(Unix), at.Addr)
	}
	if err != nil {
		return nil, err
	}
	return socket, os.Chmod(at.Addr, 0o600)
}

// Address returns the listener's address, with the port that the kernel chose.
func (l *Listener) Address() Address {
	a := l.socket.Addr()
	return Address{Network(a.Network()), a.String()}
}

// Close stops listening, drops the handshakes in progress and removes the
// socket's file. Connections that were served stay open.
func (l *Listener) Close() error {
	l.cancel()
	err := l.socket.Close()
	l.running.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop listening: %w", err)
	}
	return nil
}

// run accepts connections until the socket is closed.
func (l *Listener) run(ctx context.Context) {
	for ctx.Err() == nil {
		c, err := l.socket.Accept()
		if err == nil {
			l.begin(ctx, c)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		// Out of descriptors, or a peer that ended before it was accepted: the
		// next attempt may work.
		l.opts.Logger.Warn("can't accept a connection", zap.Error(err))
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// errSurplus reports a handshake that was ended to make room.
var errSurplus = errors.New("too many concurrent handshakes")

// begin starts a handshake for a connection, and makes room for it.
func (l *Listener) begin(ctx context.Context, c net.Conn) {
	l.mu.Lock()
	one, surplus := l.handshakes.add(c)
	l.mu.Unlock()
	if surplus != nil {
		_ = surplus.Close()
	}
	l.running.Go(func() {
		conn, err := l.opts.accept(ctx, c, l.handler, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.handshakes.hear(one)
		})
		if err == nil {
			err = giveUp(c, conn.Role, l.opts.Timeout)
		}
		l.mu.Lock()
		dropped := l.handshakes.remove(one)
		l.mu.Unlock()
		if err != nil {
			_ = c.Close()
			if dropped {
				err = errSurplus
			}
			l.opts.Logger.Warn("connection rejected: "+cause(err), zap.Stringer("peer", c.RemoteAddr()), zap.Error(err))
			return
		}
		l.handler.Serve(conn)
	})
}

// cause classifies why a peer was turned away. Strangers determine how often that
// happens, so each class has one fixed text, by which a log can be limited.
func cause(err error) string {
	switch {
	case errors.Is(err, errSurplus):
		return "too many handshakes"
	case errors.Is(err, ErrRefused):
		return "refused"
	case errors.Is(err, ErrCover):
		return "--plain on one side only"
	case errors.Is(err, ErrAuth):
		return "not authenticated"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timed out"
	case errors.Is(err, wire.ErrFrame) || errors.Is(err, wire.ErrVersion):
		return "not this protocol"
	}
	return "handshake failed"
}

// Dial connects to a peer and authenticates. want carries To, Role, Session and
// Channel; the rest is set from the options.
//
// Errors: *WrongRankError, ErrSilent, ErrAuth, ErrCover, ErrTaken, ErrRefused, the
// context's, and the network's.
func Dial(ctx context.Context, at Address, o Options, want wire.Hello) (*Conn, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: o.HandshakeTimeout, KeepAliveConfig: keepAlive(o.Timeout)}
	raw, err := d.DialContext(ctx, string(at.Network), at.Addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s at %s: %w", want.To, at, err)
	}
	c, err := o.connect(ctx, raw, want)
	if err == nil {
		err = giveUp(raw, c.Role, o.Timeout)
	}
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("connect to %s at %s: %w", want.To, at, err)
	}
	return c, nil
}
