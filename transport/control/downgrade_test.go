package control

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// tape is a connection that records what is written to it.
type tape struct {
	net.Conn

	sent bytes.Buffer
}

func (c *tape) Write(p []byte) (int, error) {
	c.sent.Write(p)
	return c.Conn.Write(p)
}

// A rank with certificates reveals nothing to a peer that has only the secret,
// even if it has that secret too, and is not admitted by one that has
// certificates when it connects without.
func TestNoDowngrade(t *testing.T) {
	kit.Check(t)
	job := newAuthority(t)
	d := newDoor()
	plain := listen(t, loopback(), options(0), d)
	secure := listen(t, loopback(), Options{Rank: 0, TLS: job.config(t, 0), Secret: testSecret()}, d)
	both := Options{Rank: 1, TLS: job.config(t, 1), Secret: testSecret(), HandshakeTimeout: patience}
	raw, err := net.Dial("tcp", plain.Address().Addr)
	if err != nil {
		t.Fatal(err)
	}
	heard := &tape{Conn: raw}
	both.EnsureDefaults()
	if _, err = both.connect(within(t), heard, hello(0)); !errors.Is(err, ErrSilent) {
		t.Errorf("a peer without certificates: %v", err)
	}
	_ = raw.Close()
	mine := wire.Hello{From: 1, Role: wire.RoleControl, Channel: 1}
	if sent := heard.sent.Bytes(); len(sent) == 0 || sent[0] != 0x16 || bytes.Contains(sent, mine.Append(nil)[:4]) {
		t.Errorf("it was told % x, which begins no TLS", sent[:min(len(sent), 32)])
	}
	if c, err := Dial(within(t), secure.Address(), options(1), hello(0)); err == nil {
		t.Error("let in without a certificate")
		_ = c.Close()
	}
	if len(d.taken) != 0 {
		t.Error("the handler was asked")
	}
}

// Certificates of the right authority that must be rejected: expired, not yet
// valid, not for clients, without a name; and an older TLS.
func TestCertificatesThatDontDo(t *testing.T) {
	kit.Check(t)
	job := newAuthority(t)
	d := newDoor()
	l := listen(t, loopback(), Options{Rank: 0, TLS: job.config(t, 0)}, d)
	at := time.Now()
	changed := func(change func(c *x509.Certificate)) *tls.Config {
		return job.issued(t, change, RankName(1))
	}
	old := job.config(t, 1)
	old.MaxVersion = tls.VersionTLS12
	for name, config := range map[string]*tls.Config{
		"over":            changed(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = at.Add(-2*time.Hour), at.Add(-time.Hour) }),
		"not yet":         changed(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = at.Add(time.Hour), at.Add(2*time.Hour) }),
		"for servers":     changed(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }),
		"without a name":  changed(func(c *x509.Certificate) { c.DNSNames = nil }),
		"of another rank": changed(func(c *x509.Certificate) { c.DNSNames = []string{RankName(2)} }),
		"none":            {RootCAs: job.roots, ClientCAs: job.roots},
	} {
		c, err := Dial(within(t), l.Address(), Options{Rank: 1, TLS: config}, hello(0))
		if err == nil {
			t.Errorf("%s: let in", name)
			_ = c.Close()
		}
	}
	raw, err := net.Dial("tcp", l.Address().Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	old.ServerName = RankName(0)
	if err = tls.Client(raw, old).HandshakeContext(within(t)); err == nil {
		t.Error("TLS 1.2 is spoken")
	}
	if len(d.taken) != 0 {
		t.Error("the handler was asked")
	}
}

// A HELLO that another member has sent is useless in one's own TLS connection,
// and so are the bytes of a whole TLS connection.
func TestReplayInTLS(t *testing.T) {
	kit.Check(t)
	job := newAuthority(t)
	d := newDoor()
	l := listen(t, loopback(), Options{Rank: 0, TLS: job.config(t, 0)}, d)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Address().Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	heard := &tape{Conn: dial()}
	o := Options{Rank: 1, TLS: job.config(t, 1)}
	o.EnsureDefaults()
	good, err := o.connect(within(t), heard, hello(0))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = good.Close(), accepted(t, d).Close()
	d.mu.Lock()
	clear(d.taken)
	d.mu.Unlock()
	again := dial()
	if _, err = again.Write(heard.sent.Bytes()); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Logf("the replay was cut off: %v", err)
	}
	_ = again.SetReadDeadline(time.Now().Add(patience))
	for p := make([]byte, 4096); err == nil; {
		_, err = again.Read(p) // what is there is of the server's own TLS
	}
	other := job.config(t, 2)
	other.ServerName, other.MinVersion = RankName(0), tls.VersionTLS13
	secure := tls.Client(dial(), other)
	if err = secure.HandshakeContext(within(t)); err != nil {
		t.Fatal(err)
	}
	claimed := hello(0)
	claimed.From, claimed.Epoch, claimed.Chunk = 1, 1, wire.MinChunk
	if _, err = secure.Write(claimed.Append(nil)); err != nil {
		t.Fatal(err)
	}
	_ = secure.SetReadDeadline(time.Now().Add(patience))
	if kind, _, err := ReadFrame(secure, wire.KindChallenge); err == nil {
		t.Errorf("rank 1 with the certificate of rank 2 is answered %s", kind)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.taken) != 0 {
		t.Error("somebody was let in")
	}
}

// A stranger that starts and then stops counts as silent like one that sends
// nothing: the first byte of a HELLO, all of it but one byte, the start of TLS.
func TestBeginIsSilence(t *testing.T) {
	kit.Check(t)
	job := newAuthority(t)
	whole := (&wire.Hello{From: 1, Epoch: 1, Role: wire.RoleControl, Channel: 1, Chunk: wire.MinChunk, Cover: wire.CoverSecret}).Append(nil)
	member := options(1)
	inNoise, err := member.opening(nil, true)
	if err != nil {
		t.Fatal(err)
	}
	message, err := inNoise.noise.Write(whole)
	if err != nil {
		t.Fatal(err)
	}
	sealed := append(wire.Header{Kind: wire.KindHello, Length: uint32(len(message))}.Append(nil), message...)
	for name, c := range map[string]beginning{
		"a byte":             {options(0), sealed[:1], true},
		"all but one byte":   {options(0), sealed[:len(sealed)-1], true},
		"a HELLO":            {options(0), sealed, false},
		"a byte to TLS":      {Options{Rank: 0, TLS: job.config(t, 0)}, []byte{0x16}, true},
		"the begin of TLS":   {Options{Rank: 0, TLS: job.config(t, 0)}, []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, true},
		"a HELLO in its way": {Options{Rank: 0, TLS: job.config(t, 0)}, whole, true},
	} {
		t.Run(name, c.run)
	}
}

// beginning sends the first bytes of a stranger to a listener with these options.
type beginning struct {
	o    Options
	says []byte
	// left is set if it counts as silent, and is dropped in favour of later ones.
	left bool
}

func (c beginning) run(t *testing.T) {
	o := c.o
	o.MaxHandshakes = 2
	l := listen(t, loopback(), o, newDoor())
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.Address().Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	first := dial()
	if _, err := first.Write(c.says); err != nil {
		t.Fatal(err)
	}
	if !c.left {
		kit.Eventually(t, patience, l.hasHeard)
		return
	}
	// Each of the next ones displaces the oldest of the silent ones.
	_, _ = dial(), dial()
	_ = first.SetReadDeadline(time.Now().Add(patience))
	if n, err := first.Read(make([]byte, 100)); err == nil || os.IsTimeout(err) {
		t.Errorf("it is kept, and told %d bytes: %v", n, err)
	}
	if l.hasHeard() {
		t.Error("it counts as one that has said something")
	}
}

// hasHeard reports whether a handshake counts as one whose peer has sent
// something.
func (l *Listener) hasHeard() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for g := range l.handshakes.count {
		if g.heard {
			return true
		}
	}
	return false
}
