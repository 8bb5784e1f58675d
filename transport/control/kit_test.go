package control

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// patience is the time limit for events that must happen, however busy the
// machine is.
const patience = 30 * time.Second

func testSecret() []byte { return kit.Bytes(1, 0, 32) }

// door is a handler that admits every rank that is not taken.
type door struct {
	mu     sync.Mutex
	taken  map[wire.Rank]bool
	served chan *Conn
	next   wire.Session
}

func newDoor() *door { return &door{taken: map[wire.Rank]bool{}, served: make(chan *Conn, 1000)} }

func (d *door) Admit(h wire.Hello) (wire.Session, *wire.Refusal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.taken[h.From] {
		return 0, &wire.Refusal{Code: wire.RefusedTaken, Reason: "somebody has it"}
	}
	d.taken[h.From] = true
	d.next++
	return d.next, nil
}

func (d *door) Serve(c *Conn) { d.served <- c }

// listen listens at an address until the test's end.
func listen(t *testing.T, at Address, o Options, h Handler) *Listener {
	t.Helper()
	l, err := Listen(t.Context(), at, o, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func loopback() Address { return Address{TCP, "127.0.0.1:0"} }

func socket(t *testing.T) Address {
	t.Helper()
	return Address{Unix, filepath.Join(t.TempDir(), "s")}
}

func options(rank wire.Rank) Options { return Options{Rank: rank, Secret: testSecret()} }

func hello(to wire.Rank) wire.Hello {
	return wire.Hello{To: to, Role: wire.RoleControl, Channel: 1}
}

// accepted waits for a connection that was served.
func accepted(t *testing.T, d *door) *Conn {
	t.Helper()
	select {
	case c := <-d.served:
		return c
	case <-time.After(patience):
		t.Fatal("nobody came")
		return nil
	}
}

// comesIn makes rank 1, which knows the secret, join and leave.
func comesIn(t *testing.T, l *Listener, d *door) {
	t.Helper()
	c, err := Dial(within(t), l.Address(), options(1), hello(0))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Close(), accepted(t, d).Close()
}

// bare is a listener that does no handshake, and its address.
func bare(t *testing.T) (net.Listener, Address) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, Address{TCP, l.Addr().String()}
}

// pairOver is the two ends of one connection, from rank 1 to rank 0.
func pairOver(t *testing.T, at Address, client, server Options) (a, b *Conn) {
	t.Helper()
	d := newDoor()
	l := listen(t, at, server, d)
	a, err := Dial(t.Context(), l.Address(), client, hello(server.Rank))
	if err != nil {
		t.Fatal(err)
	}
	return a, accepted(t, d)
}

// links is the two ends of a link over an address.
func links(t *testing.T, at Address) (a, b *Link) {
	t.Helper()
	ca, cb := pairOver(t, at, options(1), options(0))
	return link(t, ca), link(t, cb)
}

func link(t *testing.T, c *Conn) *Link {
	t.Helper()
	return linkWith(t, c, nil)
}

// linkWith is link with a handler of packets.
func linkWith(t *testing.T, c *Conn, packets PacketHandler) *Link {
	t.Helper()
	l, err := NewLink(c, packets)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// within runs a call with the time limit patience.
func within(t *testing.T) context.Context {
	t.Helper()
	return kit.Context(t, patience)
}

// authority makes certificates for the ranks of one job.
type authority struct {
	key   *ecdsa.PrivateKey
	cert  *x509.Certificate
	roots *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "job"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, cert: cert, roots: x509.NewCertPool()}
	a.roots.AddCert(cert)
	return a
}

// config is the TLS of a rank.
func (a *authority) config(t *testing.T, rank wire.Rank) *tls.Config {
	t.Helper()
	return a.named(t, RankName(rank))
}

// named returns the TLS configuration of a peer with some names.
func (a *authority) named(t *testing.T, names ...string) *tls.Config {
	t.Helper()
	return a.issued(t, func(*x509.Certificate) {}, names...)
}

// issued is named with a modified certificate.
func (a *authority) issued(t *testing.T, change func(*x509.Certificate), names ...string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		RootCAs:      a.roots, ClientCAs: a.roots,
	}
}
