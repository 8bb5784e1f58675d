package comm_test

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// joined is ranks 0 and 1, which has connected.
func joined(t *testing.T) (a, b *comm.Communicator) {
	t.Helper()
	a, at := newRank(t, 0)
	b, _ = newRank(t, 1)
	if err := errors.Join(b.Connect(within(t), 0, at), a.Await(within(t), 1)); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// TestStreams makes several streams, which are taken by name, in another order
// than they were made, and which outlive the session.
func TestStreams(t *testing.T) {
	kit.Check(t, kit.Ignore("/hmcfs-"))
	a, b := joined(t)
	inA, aerr := a.Origin(within(t), 1)
	inB, berr := b.Origin(within(t), 0)
	if err := errors.Join(aerr, berr); err != nil {
		t.Fatal(err)
	}
	var made []io.ReadWriteCloser
	for name := range uint64(3) {
		c, err := b.Stream(within(t), inB, name)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, c)
	}
	for _, name := range []uint64{2, 0} {
		c, err := a.Stream(within(t), inA, name)
		if err != nil {
			t.Fatal(err)
		}
		if name == 0 {
			if err = b.Disconnect(0); err != nil {
				t.Fatal(err)
			}
		}
		want, got := kit.Bytes(name, 0, 1000), make([]byte, 1000)
		if _, err = made[name].Write(want); err == nil {
			_, err = io.ReadFull(c, got)
		}
		if err = errors.Join(err, c.Close(), made[name].Close()); err != nil || kit.DiffAt(got, name, 0) >= 0 {
			t.Errorf("stream %d: %v", name, err)
		}
	}
	// It has not been taken.
	if n, err := made[1].Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes of a session that has ended", n)
	}
	if err := made[1].Close(); err != nil {
		t.Error(err)
	}
	if _, err := a.Stream(within(t), inA, 7); !errors.Is(err, control.ErrDisconnected) {
		t.Errorf("in a session that has ended: %v", err)
	}
	if err := errors.Join(b.Reconnect(within(t), 0), a.Reconnect(within(t), 1)); err != nil {
		t.Errorf("connect again: %v", err)
	}
}

// TestHostileStreams connects as a member that names another session, no stream,
// or too many.
func TestHostileStreams(t *testing.T) {
	kit.Check(t, kit.Ignore("/hmcfs-"))
	a, at := newRank(t, 0)
	b, _ := newRank(t, 1)
	if err := errors.Join(b.Connect(within(t), 0, at), a.Await(within(t), 1)); err != nil {
		t.Fatal(err)
	}
	in, err := b.Origin(within(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	o := control.Options{Rank: 1, Secret: kit.Bytes(1, 0, 32)}
	hello := wire.Hello{To: 0, Role: wire.RoleStream, Session: in.Session + 2}
	if _, err = control.Dial(within(t), at, o, hello); !errors.Is(err, control.ErrRefused) {
		t.Errorf("a stream of another session: %v", err)
	}
	hello.Session = in.Session
	var first *control.Conn
	for i := range 65 {
		c, derr := control.Dial(within(t), at, o, hello)
		if derr != nil {
			t.Fatal(derr)
		}
		if first == nil {
			first = c
		} else {
			t.Cleanup(func() { _ = c.Close() })
		}
		if _, err = c.Write(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err = c.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
		}
	}
	dropped(t, first)
	_ = first.Close()
}

// TestUnnamedStreams connects as a member repeatedly, and never sends the names
// of its streams: no more of them are kept than of named ones.
func TestUnnamedStreams(t *testing.T) {
	kit.Check(t, kit.Ignore("/hmcfs-"))
	a, at := newRank(t, 0)
	b, _ := newRank(t, 1)
	if err := errors.Join(b.Connect(within(t), 0, at), a.Await(within(t), 1)); err != nil {
		t.Fatal(err)
	}
	inA, aerr := a.Origin(within(t), 1)
	in, err := b.Origin(within(t), 0)
	if err = errors.Join(err, aerr); err != nil {
		t.Fatal(err)
	}
	o := control.Options{Rank: 1, Secret: kit.Bytes(1, 0, 32)}
	hello := wire.Hello{To: 0, Role: wire.RoleStream, Session: in.Session}
	var all []*control.Conn
	for range 80 {
		c, derr := control.Dial(within(t), at, o, hello)
		if derr != nil {
			t.Fatal(derr)
		}
		t.Cleanup(func() { _ = c.Close() })
		all = append(all, c)
	}
	// Long before the handshake timeout.
	closed := make(chan bool, len(all))
	for _, c := range all {
		if err = c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, rerr := c.Read(make([]byte, 1))
			closed <- !errors.Is(rerr, os.ErrDeadlineExceeded)
		}()
	}
	for range len(all) - 64 {
		if !<-closed {
			t.Fatalf("more than 64 of %d streams without a name are kept", len(all))
		}
	}
	theirs, err := b.Stream(within(t), in, 5)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := a.Stream(within(t), inA, 5)
	if err = errors.Join(err, theirs.Close()); err != nil {
		t.Fatal(err)
	}
	if err = ours.Close(); err != nil {
		t.Error(err)
	}
}

// TestMap accesses memory of a peer after the end of its key and session.
func TestMap(t *testing.T) {
	kit.Check(t, kit.Ignore("/hmcfs-"))
	a, b := joined(t)
	own, err := a.Table().Alloc(10_000)
	if err != nil {
		t.Fatal(err)
	}
	kit.FillAt(own.Host(0, 10_000), 3, 0)
	d, err := a.Share(within(t), 1, own, both)
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.Map(within(t), 0, d)
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.Map(within(t), 0, d)
	if err == nil {
		err = errors.Join(second.Close(), second.Close(), a.Revoke(within(t), 1, d.Key))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err = b.Map(within(t), 0, d); !errors.Is(err, devices.ErrUnsupported) {
		t.Errorf("a key that was revoked: %v", err)
	}
	m.Bytes()[5] ^= 1
	own.Host(0, 10_000)[5] ^= 1
	if err = errors.Join(b.Disconnect(0), own.Close(within(t))); err != nil {
		t.Fatal(err)
	}
	if kit.DiffAt(m.Bytes(), 3, 0) >= 0 {
		t.Error("the memory differs")
	}
	if err = m.Close(); err != nil {
		t.Error(err)
	}
}
