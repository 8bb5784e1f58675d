package comm_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/conformance/commtest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// TestConformancePlain is TestConformanceTCP, whose sessions are encrypted by the
// secret, without encryption.
func TestConformancePlain(t *testing.T) {
	commtest.Run(t, commtest.Way{Address: loopback, Options: func(_ testing.TB, o *comm.Options) { o.Plain = true }})
}

// unit is a frame of the handshake, or a record, in transit through a relay: its
// index in its direction, from 0, and the index of its connection, in order of
// creation.
type unit struct {
	conn, n int
	back    bool
}

// relay sits between two ranks. meddle receives each unit and returns its
// replacement.
type relay struct {
	listener net.Listener
	target   string
	meddle   func(u unit, p []byte) []byte
	running  sync.WaitGroup
}

func newRelay(t *testing.T, target string, meddle func(u unit, p []byte) []byte) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, target: target, meddle: meddle}
	r.running.Go(r.accept)
	return r
}

func (r *relay) close() {
	_ = r.listener.Close()
	r.running.Wait()
}

func (r *relay) accept() {
	for n := 0; ; n++ {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		r.running.Go(func() { r.forward(unit{conn: n}, in, out) })
		r.running.Go(func() { r.forward(unit{conn: n, back: true}, out, in) })
	}
}

// forward moves units until either end is closed.
func (r *relay) forward(u unit, from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	for ; ; u.n++ {
		size, tail := 4, 16
		if u.n == 0 {
			size, tail = wire.HeaderSize, 0
		}
		p := make([]byte, size)
		if _, err := io.ReadFull(from, p); err != nil {
			return
		}
		length := int(binary.LittleEndian.Uint32(p[size-4:]))
		if u.n > 0 {
			length >>= 8
		}
		body := make([]byte, length+tail)
		if _, err := io.ReadFull(from, body); err != nil {
			return
		}
		if _, err := to.Write(r.meddle(u, append(p, body...))); err != nil {
			return
		}
	}
}

// speak makes two ranks send something on every kind of connection of a session
// through a relay, both ways. Everything that arrives was sent, or there is an
// error.
func speak(t *testing.T, meddle func(u unit, p []byte) []byte) (err error) {
	t.Helper()
	kit.Check(t)
	engine, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ranks := make([]*comm.Communicator, 2)
	for i := range ranks {
		o := comm.Options{Rank: wire.Rank(i), Secret: kit.Bytes(1, 0, 32), Engine: engine}
		if ranks[i], err = comm.New(o); err != nil {
			t.Fatal(err)
		}
	}
	at, err := ranks[0].Listen(t.Context(), loopback(t))
	if err != nil {
		t.Fatal(err)
	}
	r := newRelay(t, at.Addr, meddle)
	defer func() {
		if cerr := errors.Join(ranks[1].Close(), ranks[0].Close(), engine.Close()); cerr != nil {
			t.Error(cerr)
		}
		r.close()
	}()
	at.Addr = r.listener.Addr().String()
	ctx := within(t)
	if err = ranks[1].Connect(ctx, 0, at); err != nil {
		return err
	}
	// It may have ended on one side before it has started on the other.
	kit.Eventually(t, patience, func() bool { return len(ranks[0].Peers()) == 1 || len(ranks[1].Peers()) == 0 })
	if cover := ranks[1].Peers(); len(cover) == 1 && cover[0].Cover != wire.CoverSecret {
		t.Errorf("the session is covered by %s", cover[0].Cover)
	}
	if err = move(t, ctx, ranks[1], ranks[0]); err != nil {
		return err
	}
	return stream(t, ctx, ranks[1], ranks[0])
}

// move puts and gets by a key that is sent in a message, and reports that by a
// tag.
func move(t *testing.T, ctx context.Context, a, b *comm.Communicator) error {
	t.Helper()
	const size = 200 << 10
	far, ferr := b.Table().Alloc(size)
	near, nerr := a.Table().Alloc(size)
	if err := errors.Join(ferr, nerr); err != nil {
		t.Fatal(err)
	}
	defer func() {
		end := context.WithoutCancel(ctx)
		_, _ = far.Close(end), near.Close(end)
	}()
	key, err := b.Share(ctx, a.Rank(), far, wire.Readable|wire.Writable)
	if err == nil {
		err = b.SendMessage(ctx, a.Rank(), key.Append(nil))
	}
	if err != nil {
		return err
	}
	text, err := a.RecvMessage(ctx, b.Rank())
	if err != nil {
		return err
	}
	remote, err := wire.ParseDescriptor(text)
	if err != nil || remote != key {
		t.Errorf("%+v came as %+v, %v", key, remote, err)
	}
	op := comm.Op{Local: near, Remote: remote, Size: size}
	copy(near.Host(0, size), kit.Bytes(5, 0, size))
	if err = a.PutNotify(ctx, b.Rank(), op, 9); err != nil {
		return err
	}
	if tag, terr := b.RecvTag(ctx, a.Rank()); terr != nil {
		return terr
	} else if at := kit.DiffAt(far.Host(0, size), 5, 0); tag != 9 || at >= 0 {
		t.Errorf("tag %d, byte %d of a put differs", tag, at)
	}
	copy(far.Host(0, size), kit.Bytes(6, 0, size))
	if err = a.Get(ctx, b.Rank(), op); err != nil {
		return err
	}
	if at := kit.DiffAt(near.Host(0, devices.Size(size)), 6, 0); at >= 0 {
		t.Errorf("byte %d of a get differs", at)
	}
	return nil
}

// stream sends bytes on a stream.
func stream(t *testing.T, ctx context.Context, a, b *comm.Communicator) error {
	t.Helper()
	inA, aerr := a.Origin(ctx, b.Rank())
	inB, berr := b.Origin(ctx, a.Rank())
	if err := errors.Join(aerr, berr); err != nil {
		return err
	}
	ours, err := a.Stream(ctx, inA, 3)
	if err != nil {
		return err
	}
	defer func() { _ = ours.Close() }()
	// A stream without a complete name is never taken.
	soon, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = ours.Read(make([]byte, 1)) // nothing comes but the end
		stop()
	}()
	defer func() { _ = ours.Close(); <-ended }()
	if _, err = ours.Write(kit.Bytes(8, 0, 1000)); err != nil {
		return err
	}
	theirs, err := b.Stream(soon, inB, 3)
	if err != nil {
		return err
	}
	defer func() { _ = theirs.Close() }()
	got := make([]byte, 1000)
	if _, err = io.ReadFull(theirs, got); err != nil {
		return err
	}
	if at := kit.DiffAt(got, 8, 0); at >= 0 {
		t.Errorf("byte %d of a stream differs", at)
	}
	return nil
}

// TestRelay puts a relay between two ranks: sessions work as without it, until it
// changes, drops, repeats or moves anything on any connection of a session, which
// is an error.
func TestRelay(t *testing.T) {
	seen := map[unit]bool{}
	var mu sync.Mutex
	err := speak(t, func(u unit, p []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		seen[u] = true
		return p
	})
	if err != nil || !seen[unit{conn: 2, n: 3}] {
		t.Fatalf("through a relay that changes nothing: %v, %d units", err, len(seen))
	}
	flip := func(at int) func([]byte) []byte {
		return func(p []byte) []byte {
			p[(at+len(p))%len(p)] ^= 1 << 4
			return p
		}
	}
	for name, do := range map[string]func([]byte) []byte{
		"the kind": flip(0), "the length": func(p []byte) []byte { p[3] ^= 1 << 7; return p },
		"a byte": func(p []byte) []byte { p[4+36%(len(p)-4)] ^= 1; return p }, "the tag": flip(-1), "twice": func(p []byte) []byte { return append(p, p...) },
	} {
		for u := range seen {
			// The handshake, and the traffic directly after it. Anything further
			// depends on timing.
			if u.n > 2 && u != (unit{conn: 1, n: 3}) || u.conn == 2 && u.back && (u.n > 1 || u.n > 0 && name == "twice") {
				continue
			}
			t.Run(fmt.Sprintf("%s/%+v", name, u), func(t *testing.T) {
				err := speak(t, func(now unit, p []byte) []byte {
					if now == u {
						return do(p)
					}
					return p
				})
				if err == nil {
					t.Error("nobody has noticed")
				}
			})
		}
	}
}

// TestRelayLeavesOut drops a record of a put, and swaps it with the next.
func TestRelayLeavesOut(t *testing.T) {
	for _, moved := range []bool{false, true} {
		var held []byte
		err := speak(t, func(u unit, p []byte) []byte {
			switch {
			case u == unit{conn: 1, n: 3}:
				held = p
				return nil
			case u == unit{conn: 1, n: 4} && moved:
				return append(p, held...)
			}
			return p
		})
		if err == nil {
			t.Errorf("moved %v: nobody has noticed", moved)
		}
	}
}

// TestCoversOfSessions uses two ranks of which one is plain: both report that.
func TestCoversOfSessions(t *testing.T) {
	kit.Check(t)
	engine, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, aerr := comm.New(comm.Options{Rank: 0, Secret: kit.Bytes(1, 0, 32), Engine: engine})
	b, berr := comm.New(comm.Options{Rank: 1, Secret: kit.Bytes(1, 0, 32), Engine: engine, Plain: true})
	if err = errors.Join(aerr, berr); err != nil {
		t.Fatal(err)
	}
	at, err := a.Listen(t.Context(), loopback(t))
	if err != nil {
		t.Fatal(err)
	}
	if err = b.Connect(within(t), 0, at); !errors.Is(err, control.ErrCover) {
		t.Errorf("a plain rank: %v", err)
	}
	if err = errors.Join(a.Close(), b.Close(), engine.Close()); err != nil {
		t.Error(err)
	}
}
