package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/netns"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// The time until a machine that answers nothing is considered dead: for tests in
// which it must be found dead, and for those in which it must not.
const (
	soonDead = 5 * time.Second
	notDead  = time.Minute
)

// inside runs fn on a thread in a network namespace, in which its sockets are
// created.
func inside(s *netns.Space, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		err := s.Enter()
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}

// machine is a rank in a network namespace.
type machine struct {
	*node

	space *netns.Space
}

func newMachine(t *testing.T, s *netns.Space, rank wire.Rank, deadAfter time.Duration, o Options) *machine {
	t.Helper()
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := comm.New(comm.Options{
		Rank: rank, Secret: kit.Bytes(1, 0, 32), Engine: e, Timeout: deadAfter, HandshakeTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Comm = c
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cerr := errors.Join(r.Close(), c.Close(), e.Close()); cerr != nil {
			t.Error(cerr)
		}
	})
	m := &machine{node: &node{Endpoint: r, comm: c}, space: s}
	if err = inside(s, func() (err error) {
		m.at, err = c.Listen(t.Context(), control.Address{Network: control.TCP, Addr: s.IPv4 + ":0"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return m
}

// connect retries until it has connected.
func (m *machine) connect(t *testing.T, to *machine) {
	t.Helper()
	kit.Eventually(t, patience, func() error {
		return inside(m.space, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return m.comm.Connect(ctx, to.comm.Rank(), to.at)
		})
	})
}

// cut is two machines connected by a cable.
type cut struct {
	asks, answers  *machine
	stuck          *stuck
	ends           chan Caller
	pull, plugBack func(context.Context) error
}

func newCut(t *testing.T, deadAfter time.Duration, how func(*netns.Space, context.Context) error) *cut {
	t.Helper()
	kit.Require(t, "root", "tool:ip", "tool:nsenter")
	kit.Check(t)
	cable, err := netns.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cable.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &cut{stuck: newStuck(), ends: make(chan Caller, 100)}
	c.answers = newMachine(t, cable.Right, 0, deadAfter, Options{
		Handlers: map[Method]Handler{1: content, 2: c.stuck.handle}, OnEnd: func(from Caller) { c.ends <- from },
	})
	c.asks = newMachine(t, cable.Left, 1, deadAfter, Options{})
	c.asks.connect(t, c.answers)
	c.pull = func(ctx context.Context) error { return how(cable.Right, ctx) }
	c.plugBack = cable.Right.Plug
	return c
}

// askOne requests n bytes of a seed.
func (c *cut) askOne(ctx context.Context, seed uint64, n int) error {
	body := binary.LittleEndian.AppendUint64(nil, seed)
	body = binary.LittleEndian.AppendUint64(body, uint64(n))
	body = binary.LittleEndian.AppendUint64(body, 0)
	got, err := c.asks.Call(ctx, 0, 1, body)
	if err == nil && !bytes.Equal(got, kit.Bytes(seed, 0, n)) {
		return errors.New("another answer")
	}
	return err
}

// gone reports whether an error is one of those that a cut may cause.
func gone(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, control.ErrDisconnected)
}

func TestPartitionPulled(t *testing.T) { partition(t, (*netns.Space).Pull) }

func TestPartitionVanished(t *testing.T) { partition(t, (*netns.Space).Vanish) }

// partition cuts the cable: meanwhile requests end at their deadline, and those
// with a long deadline when the peer is considered dead; so do the peer's
// handlers. After the repair the two connect again and start afresh.
func partition(t *testing.T, how func(*netns.Space, context.Context) error) {
	t.Helper()
	c := newCut(t, soonDead, how)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c.noticed(ctx, t)
	if err := c.askOne(ctx, 2, 100); !errors.Is(err, control.ErrDisconnected) {
		t.Errorf("without a session: %v", err)
	}
	if err := c.plugBack(ctx); err != nil {
		t.Fatal(err)
	}
	c.asks.connect(t, c.answers)
	for i := range 10 {
		if err := c.askOne(ctx, uint64(i), 70_000*i+1); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	}
	if len(c.ends) != 0 {
		t.Errorf("%+v has ended", <-c.ends)
	}
}

// noticed pulls the cable while requests are pending, and waits until both sides
// have noticed.
func (c *cut) noticed(ctx context.Context, t *testing.T) {
	t.Helper()
	short, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	long, brief := goCall(ctx, c.asks.Endpoint, 0, 2, []byte("long")), goCall(short, c.asks.Endpoint, 0, 2, []byte("short"))
	<-c.stuck.began
	<-c.stuck.began
	if err := c.pull(ctx); err != nil {
		t.Fatal(err)
	}
	if o := <-brief; !errors.Is(o.err, context.DeadlineExceeded) {
		t.Errorf("a question with a short deadline: %v", o.err)
	}
	soon, enough := context.WithTimeout(ctx, 200*time.Millisecond)
	defer enough()
	if err := c.askOne(soon, 1, 100); !gone(err) {
		t.Errorf("into the cut: %v", err)
	}
	fails(t, <-long, control.ErrDisconnected, 0)
	if ctx.Err() != nil {
		t.Error("the peer was never taken for dead")
	}
	// The peer has detected it itself: nothing has notified it.
	if got := <-c.ends; got.Rank != 1 {
		t.Errorf("%+v has ended", got)
	}
	<-c.stuck.ended
	<-c.stuck.ended
}

// A cut that is over before a peer is considered dead is only a delay: pending
// requests are answered, in the same session, even in the middle of long answers.
func TestShortPartition(t *testing.T) {
	c := newCut(t, notDead, (*netns.Space).Pull)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	waiting := goCall(ctx, c.asks.Endpoint, 0, 2, []byte("waits"))
	<-c.stuck.began
	long := make(chan error, 8)
	for i := range cap(long) {
		go func() { long <- c.askOne(ctx, uint64(i), MaxAnswer-7) }()
	}
	if err := c.pull(ctx); err != nil {
		t.Fatal(err)
	}
	late, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	defer stop()
	if err := c.askOne(late, 1, MaxAnswer-7); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("into the cut: %v", err)
	}
	if err := c.plugBack(ctx); err != nil {
		t.Fatal(err)
	}
	c.stuck.free <- struct{}{}
	if o := <-waiting; o.err != nil || string(o.answer) != "waits" {
		t.Errorf("%q, %v", o.answer, o.err)
	}
	for range cap(long) {
		if err := <-long; err != nil {
			t.Error(err)
		}
	}
	if err := c.askOne(ctx, 9, MaxAnswer-7); err != nil || len(c.ends) != 0 {
		t.Errorf("afterwards: %v; %d sessions have ended", err, len(c.ends))
	}
}
