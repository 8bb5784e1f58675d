package control

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/wire"
)

func TestHandshakeOverEveryNetwork(t *testing.T) {
	for name, at := range map[string]Address{
		"IPv4": loopback(), "IPv6": {TCP, "[::1]:0"}, "name": {TCP, "localhost:0"}, "Unix": socket(t),
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			client, server := options(7), options(3)
			client.Chunk, server.Chunk = 64<<10, 32<<10
			a, b := pairOver(t, at, client, server)
			if a.Peer != 3 || b.Peer != 7 || a.Session != b.Session || a.Session == 0 {
				t.Errorf("%+v and %+v", a, b)
			}
			if a.Epoch != b.PeerEpoch || a.PeerEpoch != b.Epoch || a.Epoch == 0 || b.Epoch == 0 {
				t.Errorf("epochs %d, %d and %d, %d", a.Epoch, a.PeerEpoch, b.PeerEpoch, b.Epoch)
			}
			if a.Chunk != 32<<10 || b.Chunk != 32<<10 {
				t.Errorf("chunks %d and %d", a.Chunk, b.Chunk)
			}
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEpochsGrow(t *testing.T) {
	var e Epochs
	last := e.Next()
	for range 10_000 {
		next := e.Next()
		if next <= last {
			t.Fatalf("%d after %d", next, last)
		}
		last = next
	}
	e.last.Store(1<<64 - 2)
	if e.Next() != 1<<64-1 {
		t.Error("the clock is trusted more than what was")
	}
}

func TestWrongSecret(t *testing.T) {
	kit.Check(t)
	d := newDoor()
	l := listen(t, loopback(), options(0), d)
	wrong := options(1)
	wrong.Secret = kit.Bytes(2, 0, 32)
	if _, err := Dial(within(t), l.Address(), wrong, hello(0)); !errors.Is(err, ErrSilent) {
		t.Errorf("got %v", err)
	}
	if len(d.taken) != 0 {
		t.Error("the handler was asked about somebody unknown")
	}
	comesIn(t, l, d)
}

// A server that does not know the secret is detected, and learns nothing of the
// client except that it is one.
func TestServerWithoutTheSecret(t *testing.T) {
	kit.Check(t)
	fake, at := bare(t)
	plain := wire.Challenge{From: 0, Epoch: 1, Cover: wire.CoverSecret}
	other := options(0)
	other.Secret = kit.Bytes(2, 0, 32)
	for name, answer := range map[string]func(c net.Conn, hello []byte) []byte{
		"in the clear": func(net.Conn, []byte) []byte { return plain.Append(nil) },
		"by another secret": func(c net.Conn, _ []byte) []byte {
			o, err := other.opening(c, true)
			if err != nil {
				t.Error(err)
			}
			m, err := o.noise.Write(plain.Append(nil))
			if err != nil {
				t.Error(err)
			}
			return append(wire.Header{Kind: wire.KindChallenge, Length: uint32(len(m))}.Append(nil), m...)
		},
		"its own words": func(_ net.Conn, hello []byte) []byte {
			return append(wire.Header{Kind: wire.KindChallenge, Length: uint32(len(hello))}.Append(nil), hello...)
		},
	} {
		go func() {
			c, err := fake.Accept()
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			_, heard, _ := ReadFrame(c, wire.KindHello)
			if bytes.Contains(heard, []byte("hmcfs")) {
				t.Errorf("% x is said to anybody", heard)
			}
			_, _ = c.Write(answer(c, heard))
			_, _ = c.Read(make([]byte, 1))
		}()
		if _, err := Dial(within(t), at, options(1), hello(0)); !errors.Is(err, ErrAuth) && !errors.Is(err, wire.ErrFrame) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestTakenRankAndWrongRank(t *testing.T) {
	kit.Check(t)
	d := newDoor()
	l := listen(t, loopback(), options(0), d)
	first, err := Dial(within(t), l.Address(), options(1), hello(0))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Dial(within(t), l.Address(), options(1), hello(0))
	if refusal, ok := errors.AsType[*RefusalError](err); !ok || !errors.Is(err, ErrTaken) || refusal.Reason == "" {
		t.Errorf("a taken rank: %v", err)
	}
	_, err = Dial(within(t), l.Address(), options(2), hello(5))
	if wrong, ok := errors.AsType[*WrongRankError](err); !ok || wrong.Want != 5 || wrong.Got != 0 || errors.Is(err, ErrAuth) {
		t.Errorf("another rank is there: %v", err)
	}
	// Two ranks of one address, neither of which listens, are both connected.
	second, err := Dial(within(t), l.Address(), options(2), hello(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []io.Closer{first, second, accepted(t, d), accepted(t, d)} {
		_ = c.Close()
	}
}

// recording keeps the bytes that a client has written.
type recording struct {
	net.Conn

	sent bytes.Buffer
}

func (r *recording) Write(p []byte) (int, error) {
	r.sent.Write(p)
	return r.Conn.Write(p)
}

// TestCovers connects every two sides that require different protection: no
// connection is made, and both report the reason.
func TestCovers(t *testing.T) {
	kit.Check(t)
	core, lines := observer.New(zap.WarnLevel)
	plain, sealed := options(0), options(0)
	plain.Plain, plain.Logger, sealed.Logger = true, zap.New(core), zap.New(core)
	for _, c := range []struct {
		name           string
		server, client Options
		cover          wire.Cover
		at             Address
	}{
		{"both encrypt", sealed, sealed, wire.CoverSecret, loopback()},
		{"both plain", plain, plain, wire.CoverPlain, loopback()},
		{"a plain client", sealed, plain, 0, loopback()},
		{"a plain server", plain, sealed, 0, loopback()},
		{"a Unix socket", sealed, sealed, wire.CoverLocal, socket(t)},
		{"a Unix socket of plain ones", plain, sealed, wire.CoverLocal, socket(t)},
	} {
		d := newDoor()
		l := listen(t, c.at, c.server, d)
		c.client.Rank = 1
		conn, err := Dial(within(t), l.Address(), c.client, hello(0))
		if c.cover == 0 {
			if !errors.Is(err, ErrCover) || !strings.Contains(err.Error(), "--plain") {
				t.Errorf("%s: %v", c.name, err)
			}
			kit.Eventually(t, patience, func() bool { return lines.FilterMessageSnippet("--plain").Len() > 0 })
			lines.TakeAll()
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		peer := accepted(t, d)
		if conn.Cover != c.cover || peer.Cover != c.cover {
			t.Errorf("%s: %s and %s", c.name, conn.Cover, peer.Cover)
		}
		_, socket := conn.Conn.(syscall.Conn)
		if socket == c.cover.Encrypts() {
			t.Errorf("%s: it is a %T", c.name, conn.Conn)
		}
		_, _ = conn.Close(), peer.Close()
	}
}

// TestOlderVersion connects a peer of the previous version: both report that.
func TestOlderVersion(t *testing.T) {
	kit.Check(t)
	core, lines := observer.New(zap.WarnLevel)
	o := options(0)
	o.Logger = zap.New(core)
	l := listen(t, loopback(), o, newDoor())
	old, err := net.Dial("tcp", l.Address().Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Close() }()
	frame := (&wire.Hello{From: 1, Epoch: 1, Role: wire.RoleControl, Channel: 1, Chunk: wire.MinChunk}).Append(nil)
	frame[1] = 1
	write(t, old, frame)
	if rest, _ := io.ReadAll(old); len(rest) > 0 {
		t.Errorf("answered with % x", rest)
	}
	kit.Eventually(t, patience, func() bool { return lines.Len() > 0 })
	if text := fmt.Sprint(lines.All()[0].ContextMap()["error"]); !strings.Contains(text, "HELLO of version 1") {
		t.Errorf("the log says %q", text)
	}
	fake, at := bare(t)
	go func() {
		c, err := fake.Accept()
		if err != nil {
			return
		}
		// It reads the header, and rejects the unknown version: the rest is
		// unread, so the kernel resets the connection.
		_, _ = io.ReadFull(c, make([]byte, wire.HeaderSize))
		_ = c.Close()
	}()
	if _, err := Dial(within(t), at, options(1), hello(0)); !errors.Is(err, ErrSilent) || !strings.Contains(err.Error(), "older") {
		t.Errorf("an older server: %v", err)
	}
}

// Replaying all messages of a valid client is useless.
func TestReplayedHello(t *testing.T) {
	kit.Check(t)
	d := newDoor()
	l := listen(t, loopback(), options(0), d)
	raw, err := net.Dial("tcp", l.Address().Addr)
	if err != nil {
		t.Fatal(err)
	}
	tape := &recording{Conn: raw}
	o := options(1)
	o.EnsureDefaults()
	good, err := o.connect(within(t), tape, hello(0))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = good.Close(), accepted(t, d).Close()
	d.mu.Lock()
	clear(d.taken)
	d.mu.Unlock()
	again, err := net.Dial("tcp", l.Address().Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if _, err = again.Write(tape.sent.Bytes()); err != nil {
		t.Fatal(err)
	}
	// Its answer is for the maker of the first message, and reveals nothing to
	// others.
	kind, answer, err := ReadFrame(again, wire.KindChallenge)
	if err != nil {
		t.Fatalf("no challenge: %v, %v", kind, err)
	}
	if bytes.Contains(answer, make([]byte, 8)) {
		t.Errorf("answered in the clear: % x", answer)
	}
	if rest, err := io.ReadAll(again); len(rest) > 0 {
		t.Errorf("answered with % x, %v", rest, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.taken) != 0 || len(d.served) != 0 {
		t.Error("the replay was let in")
	}
}

// Others can join while a silent peer is connected, which is dropped in the end.
func TestSilentClients(t *testing.T) {
	kit.Check(t)
	o := options(0)
	o.HandshakeTimeout, o.MaxHandshakes = time.Second, 8
	d := newDoor()
	l := listen(t, loopback(), o, d)
	var silent []net.Conn
	for range 20 {
		c, err := net.Dial("tcp", l.Address().Addr)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	comesIn(t, l, d)
	for _, c := range silent {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Errorf("a silent client is kept: %v", err)
		}
		_ = c.Close()
	}
}

// A rank that authenticates slowly is not dropped in favour of a stranger that
// has more connections than there is room for.
func TestStrangerDropsItself(t *testing.T) {
	kit.Check(t)
	o := options(0)
	o.MaxHandshakes = 8
	d := newDoor()
	l := listen(t, loopback(), o, d)
	slow, err := net.Dial("tcp", l.Address().Addr)
	if err != nil {
		t.Fatal(err)
	}
	stranger := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var all []net.Conn
	for range 100 {
		c, failure := stranger.DialContext(t.Context(), "tcp", l.Address().Addr)
		if failure != nil {
			t.Fatal(failure)
		}
		all = append(all, c)
	}
	for i, c := range all[:len(all)-o.MaxHandshakes] {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if _, failure := c.Read(make([]byte, 1)); failure == nil || os.IsTimeout(failure) {
			t.Errorf("connection %d of a stranger is kept: %v", i, failure)
		}
	}
	client := options(1)
	client.EnsureDefaults()
	conn, err := client.connect(t.Context(), slow, hello(0))
	if err != nil {
		t.Fatalf("the slow one: %v", err)
	}
	_ = accepted(t, d).Close()
	_ = conn.Close()
	for _, c := range all {
		_ = c.Close()
	}
}

// Anything that is not a handshake is dropped, and allocates no memory.
func TestForeignBytes(t *testing.T) {
	kit.Check(t)
	d := newDoor()
	l := listen(t, loopback(), options(0), d)
	forged := wire.Header{Kind: wire.KindHello}.Append(nil)
	binary.LittleEndian.PutUint32(forged[4:], 1<<32-1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for seed := range uint64(50) {
		for _, p := range [][]byte{kit.Bytes(seed, 0, 4096), forged, wire.AppendTag(nil, 1), []byte("GET / HTTP/1.1\r\n\r\n")} {
			c, err := net.Dial("tcp", l.Address().Addr)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write(p)
			_ = c.SetReadDeadline(time.Now().Add(patience))
			if n, err := c.Read(make([]byte, 100)); n != 0 || err == nil || os.IsTimeout(err) {
				t.Errorf("% x is answered with %d bytes, %v", p[:8], n, err)
			}
			_ = c.Close()
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
	if len(d.taken) != 0 {
		t.Error("somebody was let in")
	}
}

func TestDialGivesUp(t *testing.T) {
	kit.Check(t)
	_, at := bare(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, at, options(1), hello(0)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("by the context: %v", err)
	}
	o := options(1)
	o.HandshakeTimeout = 50 * time.Millisecond
	if _, err := Dial(within(t), at, o, hello(0)); !os.IsTimeout(errors.Unwrap(errors.Unwrap(err))) && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("by the options: %v", err)
	}
}

func TestListenerEnds(t *testing.T) {
	kit.Check(t)
	at := socket(t)
	l, err := Listen(t.Context(), at, options(0), newDoor())
	if err != nil {
		t.Fatal(err)
	}
	if info, serr := os.Stat(at.Addr); serr != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, serr)
	}
	if _, err = Listen(t.Context(), at, options(0), newDoor()); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("two on one socket: %v", err)
	}
	hanging, err := net.Dial("unix", at.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hanging.Close() }()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(at.Addr); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	taken := listen(t, loopback(), options(0), newDoor())
	if _, err := Listen(t.Context(), taken.Address(), options(0), newDoor()); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a port in use: %v", err)
	}
}

// Leftovers of a killed process do not stop the next one.
func TestStaleSocket(t *testing.T) {
	kit.Check(t)
	at := socket(t)
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: at.Addr, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	listen(t, at, options(0), newDoor())
}

func TestMutualTLS(t *testing.T) {
	kit.Check(t)
	job, strangers := newAuthority(t), newAuthority(t)
	server := Options{Rank: 0, TLS: job.config(t, 0)}
	d := newDoor()
	l := listen(t, loopback(), server, d)
	for name, o := range map[string]Options{
		"stranger":      {Rank: 1, TLS: strangers.config(t, 1)},
		"another rank":  {Rank: 1, TLS: job.config(t, 2)},
		"plain":         {Rank: 1, Secret: testSecret(), HandshakeTimeout: time.Second},
		"with a secret": {Rank: 1, TLS: job.config(t, 1), Secret: testSecret()},
	} {
		if c, err := Dial(within(t), l.Address(), o, hello(0)); err == nil {
			t.Errorf("%s came in", name)
			_ = c.Close()
		}
	}
	c, err := Dial(within(t), l.Address(), Options{Rank: 1, TLS: job.config(t, 1)}, hello(0))
	if err != nil {
		t.Fatal(err)
	}
	a, b := link(t, c), link(t, accepted(t, d))
	if err := a.SendTag(within(t), 5); err != nil {
		t.Fatal(err)
	}
	if tag, err := b.RecvTag(within(t)); tag != 5 || err != nil {
		t.Errorf("%d, %v", tag, err)
	}
	// A server with another rank's certificate is rejected.
	other := listen(t, loopback(), Options{Rank: 3, TLS: job.config(t, 4)}, newDoor())
	if _, err := Dial(within(t), other.Address(), Options{Rank: 1, TLS: job.config(t, 1)}, hello(3)); !errors.Is(err, ErrAuth) {
		t.Errorf("a server with another certificate: %v", err)
	}
}

// Ranks may have names of the caller's choice, and a rank whose name is not known
// yet proves it by its certificate.
func TestNamesInCertificates(t *testing.T) {
	kit.Check(t)
	job := newAuthority(t)
	known := func(r wire.Rank) string { return map[wire.Rank]string{0: "a", 1: "b"}[r] }
	rankOf := func(name string) wire.Rank { return map[string]wire.Rank{"a": 0, "b": 1, "c": 2, "*.e": 2}[name] }
	d := newDoor()
	open := listen(t, loopback(), Options{Rank: 0, TLS: job.named(t, "a"), PeerName: known, PeerRank: rankOf}, d)
	strict := listen(t, loopback(), Options{Rank: 0, TLS: job.named(t, "a"), PeerName: known}, d)
	for _, c := range []struct {
		at    Address
		rank  wire.Rank
		names []string
		good  bool
	}{
		{open.Address(), 1, []string{"b"}, true},
		{open.Address(), 1, []string{"c"}, false},
		{open.Address(), 1, []string{"rank-1.hmcfs"}, false},
		{open.Address(), 2, []string{"x", "c"}, true},
		{open.Address(), 2, []string{"b"}, false},
		{open.Address(), 2, []string{"*.e"}, false},
		{open.Address(), 2, nil, false},
		{strict.Address(), 2, []string{"c"}, false},
	} {
		conn, err := Dial(within(t), c.at, Options{Rank: c.rank, TLS: job.named(t, c.names...), PeerName: known}, hello(0))
		if c.good != (err == nil) {
			t.Errorf("%s with a certificate for %q: %v", c.rank, c.names, err)
		}
		if err == nil {
			_, _ = conn.Close(), accepted(t, d).Close()
		}
	}
	me := Options{Rank: 1, TLS: job.named(t, "b"), PeerName: func(wire.Rank) string { return "c" }}
	if _, err := Dial(within(t), open.Address(), me, hello(0)); !errors.Is(err, ErrAuth) {
		t.Errorf("a server with another name: %v", err)
	}
	me.PeerName = func(wire.Rank) string { return "" }
	if _, err := Dial(within(t), open.Address(), me, hello(0)); !errors.Is(err, ErrAuth) {
		t.Errorf("a server whose name is not known: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"no secret":     {},
		"short secret":  {Secret: []byte("123456789012345")},
		"small chunk":   {Secret: testSecret(), Chunk: 1},
		"large chunk":   {Secret: testSecret(), Chunk: wire.MaxChunk + 1},
		"negative time": {Secret: testSecret(), HandshakeTimeout: -1},
		"plain TLS":     {Secret: testSecret(), Plain: true, TLS: &tls.Config{}},
	} {
		if _, err := Listen(t.Context(), loopback(), o, newDoor()); err == nil {
			t.Errorf("%s: listens", name)
		}
		if _, err := Dial(t.Context(), loopback(), o, hello(0)); err == nil {
			t.Errorf("%s: connects", name)
		}
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]Address{
		"host:4242":  {TCP, "host:4242"},
		"tcp::4242":  {TCP, ":4242"},
		"[::1]:1":    {TCP, "[::1]:1"},
		"unix:/a/b":  {Unix, "/a/b"},
		"host":       {},
		"unix:":      {},
		"::1:70":     {},
		"tcp:nobody": {},
	} {
		got, err := ParseAddress(text)
		if got != want || (err == nil) != (want != Address{}) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if again, err := ParseAddress(got.String()); want != (Address{}) && (again != got || err != nil) {
			t.Errorf("%q: %v, %v", got.String(), again, err)
		}
	}
	if path, err := SocketPath("/tmp/", 7); path != "/tmp/hmc_ctrl_rank_7.sock" || err != nil {
		t.Errorf("%q, %v", path, err)
	}
	if _, err := SocketPath("/"+string(bytes.Repeat([]byte("d"), 100)), 7); err == nil {
		t.Error("a path that no socket has")
	}
}

func TestChooseNetwork(t *testing.T) {
	for _, tc := range []struct {
		override, local, peer string
		want                  Network
	}{
		{"", "10.0.0.1", "10.0.0.1", Unix},
		{"", "10.0.0.1", "10.0.0.2", TCP},
		{"", "", "", TCP},
		{"", "0.0.0.0", "0.0.0.0", TCP},
		{"", "::", "::", TCP},
		{"", "::1", "0:0::1", Unix},
		{"", "::ffff:10.0.0.1", "10.0.0.1", Unix},
		{"", "node1", "node1", Unix},
		{"", "node1", "node2", TCP},
		{"uds", "10.0.0.1", "10.0.0.2", Unix},
		{"tcp", "10.0.0.1", "10.0.0.1", TCP},
		{"x", "a", "a", TCP},
	} {
		if got := ChooseNetwork(tc.override, tc.local, tc.peer); got != tc.want {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}

// FuzzAccept sends random bytes to a listener.
func FuzzAccept(f *testing.F) {
	f.Add((&wire.Hello{From: 1, Epoch: 1, Role: wire.RoleControl, Channel: 1, Chunk: wire.MinChunk, Cover: wire.CoverSecret}).Append(nil))
	f.Add(append(wire.Header{Kind: wire.KindHello, Length: 128}.Append(nil), make([]byte, 128)...))
	f.Fuzz(func(t *testing.T, p []byte) {
		client, server := net.Pipe()
		go func() {
			_, _ = client.Write(p)
			_ = client.SetReadDeadline(time.Unix(1, 0))
			_ = client.Close()
		}()
		o := options(0)
		o.EnsureDefaults()
		d := newDoor()
		if _, err := o.accept(t.Context(), server, d, func() {}); err == nil || len(d.taken) != 0 {
			t.Errorf("% x was let in", p)
		}
		_ = server.Close()
	})
}
