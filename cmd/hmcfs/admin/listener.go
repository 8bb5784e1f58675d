package admin

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
)

// maxForeign bounds the connections of each user who is neither root nor the user who
// mounted, as each uses a descriptor of the daemon. Each session adds perSession.
const (
	maxForeign = 32
	perSession = 32
)

// listener accepts connections and identifies the clients.
type listener struct {
	*net.UnixListener
	ask   func(*net.UnixConn) (Peer, error)
	owner int
	log   *zap.Logger
	// sessions returns the number of sessions of a user.
	sessions func(uid int) int
	refusals *Refusals

	mu sync.Mutex
	// open counts the connections of other users.
	// +checklocks:mu
	open map[int]int
	// spare is a descriptor in whose place a connection is accepted when there is no other; nil while that lasts.
	// +checklocks:mu
	spare *os.File
	// ended is set once the listener is closed.
	// +checklocks:mu
	ended bool
}

// conn is a connection with the identity of its client.
type conn struct {
	*net.UnixConn
	peer Peer
	// trusted is set for root and the user who mounted.
	trusted bool
	// full is set if it was accepted in the place of the spare descriptor: it gets one answer, which refuses.
	full bool
	once sync.Once
	gone func()
}

// Close closes the connection and makes room for another one.
func (c *conn) Close() error {
	defer c.once.Do(c.gone)
	if c.UnixConn == nil { // a request of the page
		return nil
	}
	return c.UnixConn.Close()
}

// Accept waits for the next connection. Those beyond the limit are closed. If this process can open no more files, one is accepted
// nevertheless, to be refused with an answer.
func (l *listener) Accept() (net.Conn, error) {
	for {
		_ = l.keepSpare()
		u, err := l.AcceptUnix()
		if noFiles(err) {
			u, err = l.acceptSpare(err)
		}
		if err != nil {
			return nil, err
		}
		full := noFiles(l.keepSpare()) // it has the place of the spare one
		peer, err := l.ask(u)
		if err != nil {
			l.log.Warn("can't identify the client of the admin socket", zap.Error(err))
			peer = Peer{UID: -1, GID: -1}
		}
		c := &conn{UnixConn: u, peer: peer, trusted: peer.UID == 0 || peer.UID == l.owner, full: full, gone: func() {}}
		if full {
			c.gone = func() { _ = l.keepSpare() }
			return c, nil
		}
		if c.trusted || l.admit(c) {
			return c, nil
		}
		l.refusals.add(boundConnections)
		_ = u.Close() // nothing was received on it
	}
}

// acceptLimit bounds the wait for a client that may have given up.
const acceptLimit = time.Second

// acceptSpare accepts a connection in the place of the spare descriptor.
//
// Errors: full, if there is none, or another has taken its place.
func (l *listener) acceptSpare(full error) (*net.UnixConn, error) {
	l.mu.Lock()
	spare := l.spare
	l.spare = nil
	l.mu.Unlock()
	if spare == nil {
		return nil, full
	}
	if err := errors.Join(spare.Close(), l.SetDeadline(time.Now().Add(acceptLimit))); err != nil {
		return nil, err
	}
	u, err := l.AcceptUnix()
	_ = l.SetDeadline(time.Time{}) // that of a closed listener fails, as the next call does
	if err != nil {
		return nil, full
	}
	return u, nil
}

// keepSpare opens the spare descriptor if there is none. It is tried again before each connection.
func (l *listener) keepSpare() (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spare == nil && !l.ended {
		l.spare, err = os.Open(os.DevNull)
	}
	return err
}

// Close ends the listener.
func (l *listener) Close() error {
	l.mu.Lock()
	spare := l.spare
	l.spare, l.ended = nil, true
	l.mu.Unlock()
	err := l.UnixListener.Close()
	if spare != nil {
		err = errors.Join(err, spare.Close())
	}
	return err
}

// admit counts a connection of another user, if the limit permits it.
func (l *listener) admit(c *conn) bool {
	uid := c.peer.UID
	most := maxForeign + perSession*l.sessions(uid)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[uid] >= most {
		return false
	}
	l.open[uid]++
	c.gone = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.open[uid]--; l.open[uid] == 0 {
			delete(l.open, uid)
		}
	}
	return true
}
