package commtest

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// patience bounds the wait for events that must happen, however busy the machine is.
const patience = 60 * time.Second

// both is the set of all rights of a key.
const both = wire.Readable | wire.Writable

// Way defines how the ranks of a run are connected.
type Way struct {
	// Beside reports whether bytes bypass both the control connection and the data connections, so
	// that a relay cannot stop them.
	Beside bool
	// Address returns the address at which a rank listens.
	Address func(t testing.TB) control.Address
	// Options changes the options of every rank; nil leaves them unchanged.
	Options func(t testing.TB, o *comm.Options)
	// Transport is the one that two ranks connected without a relay must choose; empty means
	// any.
	Transport comm.Transport
	// Allocates reports whether operations may allocate memory.
	Allocates bool
}

// world holds the ranks of one job.
type world struct {
	way   Way
	ranks []*comm.Communicator
	at    []control.Address
}

// open creates n ranks that listen, and closes them at the end of the test.
func (w Way) open(t testing.TB, n int, tweak func(*comm.Options)) *world {
	t.Helper()
	job := &world{way: w}
	for i := range n {
		c := w.rank(t, wire.Rank(i), tweak)
		at, err := c.Listen(t.Context(), w.Address(t))
		if err != nil {
			t.Fatal(err)
		}
		job.ranks, job.at = append(job.ranks, c), append(job.at, at)
	}
	return job
}

// rank creates one rank.
func (w Way) rank(t testing.TB, rank wire.Rank, tweak func(*comm.Options)) *comm.Communicator {
	t.Helper()
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := comm.Options{Rank: rank, Secret: kit.Bytes(1, 0, 32), Engine: e}
	// Traffic through a relay over TCP is as unprotected as that of the Unix socket.
	o.Plain = w.Address(t).Network == control.Unix
	if w.Options != nil {
		w.Options(t, &o)
	}
	if tweak != nil {
		tweak(&o)
	}
	c, err := comm.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), e.Close()); err != nil {
			t.Error(err)
		}
		if live := c.Table().Stats().Live; live != 0 {
			t.Errorf("rank %d: %d registrations are left", rank, live)
		}
	})
	return c
}

// connect connects rank a to rank b, through an address if one is given.
func (w *world) connect(t testing.TB, a, b int, by ...control.Address) {
	t.Helper()
	at := w.at[b]
	if len(by) > 0 {
		at = by[0]
	}
	if err := w.ranks[a].Connect(within(t), wire.Rank(b), at); err != nil {
		t.Fatal(err)
	}
	if err := w.ranks[b].Await(within(t), wire.Rank(a)); err != nil {
		t.Fatal(err)
	}
}

// pair returns two connected ranks.
func (w Way) pair(t testing.TB) *world {
	t.Helper()
	job := w.open(t, 2, nil)
	job.connect(t, 1, 0)
	for _, c := range job.ranks {
		peers := c.Peers()
		if len(peers) != 1 || w.Transport != "" && peers[0].Transport != w.Transport {
			t.Fatalf("%s: %+v", c.Rank(), peers)
		}
	}
	return job
}

// within returns a context with patience as its timeout.
func within(t testing.TB) context.Context {
	t.Helper()
	return kit.Context(t, patience)
}

// closing closes a buffer before its rank.
func closing(t testing.TB, b *region.Buffer, err error) *region.Buffer {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return b
}

// host returns n bytes of registered host memory of a rank.
func (w *world) host(t testing.TB, rank int, n devices.Size) *region.Buffer {
	t.Helper()
	b, err := w.ranks[rank].Table().Alloc(n)
	return closing(t, b, err)
}

// sim returns n bytes of registered memory of a simulated device.
func (w *world) sim(t testing.TB, rank int, n devices.Size) *region.Buffer {
	t.Helper()
	m := transporttest.Simulated(t, n, sim.Params{})
	b, err := w.ranks[rank].Table().RegisterDevice(m.All())
	return closing(t, b, err)
}

// share gives rank `to` a key to a buffer of rank `from`, over the wire as users do.
func (w *world) share(t testing.TB, from, to int, b *region.Buffer, rights wire.Rights) wire.Descriptor {
	t.Helper()
	d, err := w.ranks[from].Share(within(t), wire.Rank(to), b, rights)
	if err != nil {
		t.Fatal(err)
	}
	if err = w.ranks[from].SendMessage(within(t), wire.Rank(to), d.Append(nil)); err != nil {
		t.Fatal(err)
	}
	p, err := w.ranks[to].RecvMessage(within(t), wire.Rank(from))
	if err != nil {
		t.Fatal(err)
	}
	if d, err = wire.ParseDescriptor(p); err != nil {
		t.Fatal(err)
	}
	return d
}

// large returns a size in bytes, reduced under the race detector, which slows down every byte, and
// except for make check, which runs the suite too.
func large(n int) int {
	switch {
	case kit.Race():
		return n / 5
	case !kit.Exhaustive():
		return n / 3
	}
	return n
}

// relay forwards connections between two ranks, and can be cut or stopped.
type relay struct {
	listener net.Listener
	target   control.Address
	running  sync.WaitGroup

	mu sync.Mutex
	// +checklocks:mu
	conns []net.Conn
	// moved counts the forwarded bytes by connection and direction, in the order in which the
	// connections were made.
	// +checklocks:mu
	moved []int
	// stopped reports that nothing is forwarded at present.
	// +checklocks:mu
	stopped bool
	resumed chan struct{}
}

// relay starts a relay in front of rank 1, which listens on TCP for it: both ends of a
// connection must use the same network.
func (w *world) relay(t testing.TB) *relay {
	t.Helper()
	at := w.at[1]
	if at.Network != control.TCP {
		var err error
		if at, err = w.ranks[1].Listen(t.Context(), control.Address{Network: control.TCP, Addr: "127.0.0.1:0"}); err != nil {
			t.Fatal(err)
		}
	}
	return newRelay(t, at)
}

// newRelay relays to an address until the end of the test.
func newRelay(t testing.TB, target control.Address) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, target: target, resumed: make(chan struct{})}
	r.running.Go(r.accept)
	t.Cleanup(func() {
		_ = l.Close()
		close(r.resumed)
		r.cut()
		r.running.Wait()
	})
	return r
}

func (r *relay) address() control.Address {
	return control.Address{Network: control.TCP, Addr: r.listener.Addr().String()}
}

func (r *relay) accept() {
	for {
		a, err := r.listener.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial(string(r.target.Network), r.target.Addr)
		if err != nil {
			_ = a.Close()
			continue
		}
		r.mu.Lock()
		i := len(r.moved)
		r.conns, r.moved = append(r.conns, a, b), append(r.moved, 0, 0)
		r.mu.Unlock()
		r.running.Go(func() { r.copy(a, b, i) })
		r.running.Go(func() { r.copy(b, a, i+1) })
	}
}

// copy forwards bytes in one direction, counts them at i, and cuts both directions at the end.
func (r *relay) copy(dst, src net.Conn, i int) {
	defer func() { _, _ = dst.Close(), src.Close() }()
	p := make([]byte, 64<<10)
	for {
		n, err := src.Read(p)
		r.mu.Lock()
		r.moved[i] += n
		stopped := r.stopped
		r.mu.Unlock()
		if stopped {
			<-r.resumed
		}
		if err != nil {
			return
		}
		if _, err := dst.Write(p[:n]); err != nil {
			return
		}
	}
}

// stop stops forwarding.
func (r *relay) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
}

// cut breaks every connection, like a crash of a machine's kernel.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
	r.conns = nil
}

// each returns the number of bytes forwarded by each connection in each direction.
func (r *relay) each() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.moved)
}

// through returns the number of bytes forwarded.
func (r *relay) through() (all int) {
	for _, n := range r.each() {
		all += n
	}
	return all
}
