package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// patience bounds the waits of tests that don't measure the time.
const patience = 60 * time.Second

// way is a network between two nodes that can be frozen: connections are then accepted and
// stay open, but transfer no bytes, as with a stopped process.
type way struct {
	listener net.Listener
	to       string
	accepted atomic.Int64
	running  sync.WaitGroup

	mu sync.Mutex
	// thawed is closed while bytes come through.
	// +checklocks:mu
	thawed chan struct{}
	// +checklocks:mu
	conns []net.Conn
}

func newWay(t *testing.T, to string) *way {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	thawed := make(chan struct{})
	close(thawed)
	w := &way{listener: l, to: to, thawed: thawed}
	w.running.Go(w.accept)
	t.Cleanup(func() {
		_ = l.Close()
		w.mu.Lock()
		for _, c := range w.conns {
			_ = c.Close()
		}
		w.mu.Unlock()
		w.thaw()
		w.running.Wait()
	})
	return w
}

func (w *way) accept() {
	for {
		from, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.accepted.Add(1)
		to, err := net.Dial("tcp", w.to) //nolint:noctx // a connection to the local host
		if err != nil {
			_ = from.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, from, to)
		w.mu.Unlock()
		w.running.Go(func() { w.pass(from, to) })
		w.running.Go(func() { w.pass(to, from) })
	}
}

func (w *way) pass(from, to net.Conn) {
	p := make([]byte, 64<<10)
	for {
		n, err := from.Read(p)
		<-w.open()
		if n > 0 {
			if _, werr := to.Write(p[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			_ = errors.Join(to.Close(), from.Close())
			return
		}
	}
}

func (w *way) open() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.thawed
}

func (w *way) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.thawed = make(chan struct{})
}

func (w *way) thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.thawed:
	default:
		close(w.thawed)
	}
}

// TestPeerStops has a node stop answering with any number of requests in progress: all fail
// together, later ones fail at once and without a connection attempt each, Nodes shows the
// time, and when the node answers again that is detected without a request.
func TestPeerStops(t *testing.T) {
	for _, askers := range []int{1, 8, 64} {
		t.Run(fmt.Sprint(askers), func(t *testing.T) {
			kit.Check(t)
			peerStops(t, askers)
		})
	}
}

func peerStops(t *testing.T, askers int) {
	t.Helper()
	w := clustertest.New(t, clustertest.Options{Change: func(_ members.Name, o *cluster.Options) {
		o.Timeout, o.DialTimeout = time.Second, 500*time.Millisecond
	}})
	way := newWay(t, strings.TrimPrefix(w.Node("b").Cluster.Listening()[0], "tcp:"))
	w.Node("a").View.Set("b", way.listener.Addr().String())
	b, ask := w.Peer("a", "b"), func(name string) error {
		_, err := w.Peer("a", "b").Lookup(t.Context(), clustertest.Root(), metadata.RootIno, name)
		return err
	}
	if err := ask("host"); err != nil {
		t.Fatal(err)
	}
	b.Forget()
	begun := time.Now().Truncate(time.Second)
	way.freeze()
	errs := make(chan error)
	for i := range askers {
		go func() { errs <- ask(fmt.Sprint("name", i)) }()
	}
	for range askers {
		if err := <-errs; !errors.Is(err, cluster.ErrUnreachable) {
			t.Errorf("a node that does not answer: %v", err)
		}
	}
	before := way.accepted.Load()
	for range 1000 {
		err := ask("another")
		if !errors.Is(err, cluster.ErrUnreachable) || !strings.Contains(err.Error(), "node b") || !strings.Contains(err.Error(), "no answer since") {
			t.Fatalf("a node that is known not to answer: %v", err)
		}
	}
	if dials := way.accepted.Load() - before; dials > 100 {
		t.Errorf("%d connections for 1000 questions", dials)
	}
	state := w.Node("a").Cluster.Nodes()[0]
	if state.Connected || !strings.Contains(state.Problem, "no answer since "+begun.UTC().Format("2006-01-02T15")) {
		t.Errorf("its state: %+v", state)
	}
	way.thaw()
	kit.Eventually(t, patience, func() bool { return w.Node("a").Cluster.Nodes()[0].Connected })
	kit.Eventually(t, patience, func() bool { return ask("host") == nil })
	if state = w.Node("a").Cluster.Nodes()[0]; state.Problem != "" {
		t.Errorf("its state when it is back: %+v", state)
	}
}

// TestUnknownPeerIsSilent is TestPeerStops with a node that has never answered: the first
// requests wait together for the attempt to connect.
func TestUnknownPeerIsSilent(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Change: func(_ members.Name, o *cluster.Options) {
		o.DialTimeout = 500 * time.Millisecond
	}})
	way := newWay(t, strings.TrimPrefix(w.Node("b").Cluster.Listening()[0], "tcp:"))
	w.Node("a").View.Set("b", way.listener.Addr().String())
	way.freeze()
	b := w.Peer("a", "b")
	ask := func(ctx context.Context) error {
		_, err := b.Attr(ctx, clustertest.Root(), metadata.RootIno)
		return err
	}
	if err := ask(t.Context()); !errors.Is(err, cluster.ErrUnreachable) {
		t.Fatal(err)
	}
	before := way.accepted.Load()
	for range 1000 {
		if err := ask(t.Context()); !errors.Is(err, cluster.ErrUnreachable) || !strings.Contains(err.Error(), "no answer since") {
			t.Fatal(err)
		}
	}
	if dials := way.accepted.Load() - before; dials > 100 {
		t.Errorf("%d connections for 1000 questions", dials)
	}
	way.thaw()
	kit.Eventually(t, patience, func() bool { return ask(t.Context()) == nil })
}
