package commtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// TLS returns a Way.Options with which the ranks of a job authenticate by certificates, without a
// secret.
func TLS(t testing.TB) func(t testing.TB, o *comm.Options) {
	t.Helper()
	job := newAuthority(t)
	return func(t testing.TB, o *comm.Options) {
		t.Helper()
		o.Secret, o.TLS = nil, job.config(t, o.Rank)
	}
}

// authority signs the certificates of one job.
type authority struct {
	key   *ecdsa.PrivateKey
	cert  *x509.Certificate
	roots *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{roots: x509.NewCertPool()}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	var der []byte
	der, a.key = a.sign(t, a.cert)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.cert = cert
	a.roots.AddCert(cert)
	return a
}

// sign creates a key and its certificate; the first one is self-signed.
func (a *authority) sign(t testing.TB, template *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

// config returns the TLS configuration of a rank.
func (a *authority) config(t testing.TB, rank wire.Rank) *tls.Config {
	t.Helper()
	der, key := a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{control.RankName(rank)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: a.roots, ClientCAs: a.roots,
	}
}
