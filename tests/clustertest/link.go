package clustertest

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata/members"
)

// Link is the network between two nodes, which a test can cut.
type Link struct {
	t      testing.TB
	target string
	listen net.Listener
	work   sync.WaitGroup

	mu sync.Mutex
	// flows is closed while bytes pass through.
	// +checklocks:mu
	flows chan struct{}
	// +checklocks:mu
	cut bool
	// +checklocks:mu
	delay time.Duration
	// conns are closed with the link; over is true once closing has started.
	// +checklocks:mu
	conns []net.Conn
	// +checklocks:mu
	over bool
}

// chunk is a sequence of bytes in transit.
type chunk struct {
	due   time.Time
	bytes []byte
}

// Links puts a link between every two nodes, for every connection in either direction, and
// returns the links between a and b. It must be called before the nodes connect.
func (w *World) Links(a, b members.Name) []*Link {
	w.t.Helper()
	var both []*Link
	for _, pair := range [][2]members.Name{{a, b}, {b, a}} {
		to := w.Node(pair[1])
		l := newLink(w.t, to.at.Addr)
		w.links[pair] = l
		w.Node(pair[0]).View.Set(to.Name, l.listen.Addr().String())
		both = append(both, l)
	}
	return both
}

func newLink(t testing.TB, target string) *Link {
	t.Helper()
	var lc net.ListenConfig
	listen, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{t: t, target: target, listen: listen, flows: make(chan struct{})}
	close(l.flows)
	l.work.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

// Cut holds all bytes back until Heal: neither end is notified.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cut {
		l.cut, l.flows = true, make(chan struct{})
	}
}

// Heal ends a cut: the bytes that were held back arrive.
func (l *Link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		l.cut = false
		close(l.flows)
	}
}

// Slow delays the bytes that the target sends; 0 means no delay.
func (l *Link) Slow(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
}

func (l *Link) state() (flows <-chan struct{}, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flows, l.delay
}

// keep records a connection to be closed with the link. If the link is already closed, it
// closes the connection at once.
func (l *Link) keep(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		_ = c.Close()
		return
	}
	l.conns = append(l.conns, c)
}

func (l *Link) accept() {
	for {
		from, err := l.listen.Accept()
		if err != nil {
			return
		}
		l.keep(from)
		l.work.Go(func() {
			defer func() { _ = from.Close() }()
			flows, _ := l.state()
			<-flows
			var d net.Dialer
			to, err := d.DialContext(l.t.Context(), "tcp", l.target)
			if err != nil {
				return
			}
			l.keep(to)
			l.work.Go(func() { l.pass(from, to, false) })
			l.pass(to, from, true)
		})
	}
}

// pass forwards bytes, with the link's delay if late is true.
func (l *Link) pass(from, to net.Conn, late bool) {
	way := make(chan chunk, 1<<16)
	l.work.Go(func() {
		defer func() { _ = to.Close() }()
		for c := range way {
			<-time.After(time.Until(c.due))
			flows, _ := l.state()
			<-flows
			if _, err := to.Write(c.bytes); err != nil {
				_ = from.Close()
				for range way { // so that the reader ends
				}
				return
			}
		}
	})
	defer close(way)
	for {
		p := make([]byte, 64<<10)
		n, err := from.Read(p)
		_, delay := l.state()
		if !late {
			delay = 0
		}
		if n > 0 {
			way <- chunk{due: time.Now().Add(delay), bytes: p[:n]}
		}
		if err != nil {
			return
		}
	}
}

func (l *Link) close() {
	l.Heal()
	l.mu.Lock()
	l.over = true
	conns := l.conns
	l.mu.Unlock()
	if err := l.listen.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		l.t.Error(err)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	l.work.Wait()
}
