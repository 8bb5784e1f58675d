package admin

import (
	"net"
	"sync"

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
}

// conn is a connection with the identity of its client.
type conn struct {
	*net.UnixConn
	peer Peer
	// trusted is set for root and the user who mounted.
	trusted bool
	once    sync.Once
	gone    func()
}

// Close closes the connection and makes room for another one.
func (c *conn) Close() error {
	defer c.once.Do(c.gone)
	if c.UnixConn == nil { // a request of the page
		return nil
	}
	return c.UnixConn.Close()
}

// Accept waits for the next connection. Those beyond the limit are closed.
func (l *listener) Accept() (net.Conn, error) {
	for {
		u, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := l.ask(u)
		if err != nil {
			l.log.Warn("can't identify the client of the admin socket", zap.Error(err))
			peer = Peer{UID: -1, GID: -1}
		}
		c := &conn{UnixConn: u, peer: peer, trusted: peer.UID == 0 || peer.UID == l.owner, gone: func() {}}
		if c.trusted || l.admit(c) {
			return c, nil
		}
		l.refusals.add(boundConnections)
		_ = u.Close() // nothing was received on it
	}
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
