package etcdkit

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// User is the name of a user who may read and write below Allowed, if there is a password.
const (
	User    = "hmcfs"
	Allowed = "/hmcfs/"
)

// Files holds the paths of the files that a client needs, in PEM.
type Files struct {
	// CA contains the certificate authority of the server's certificate.
	CA string
	// Cert and Key contain a client's certificate and its key.
	Cert, Key string
}

// proofs holds the certificates of a server and its clients.
type proofs struct {
	Files
	serverCert, serverKey string

	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// Files returns the paths of the certificates. The server must use TLS.
func (s *Server) Files() Files { return s.proofs.Files }

// TLS returns the configuration of a client; nil if the server does not use TLS.
func (s *Server) TLS() (*tls.Config, error) {
	if s.proofs == nil {
		return nil, nil
	}
	own, err := tls.LoadX509KeyPair(s.proofs.Cert, s.proofs.Key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.proofs.cert)
	return &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: roots}, nil
}

// newProofs creates the certificates and writes them into a directory.
func newProofs(dir, host string) (*proofs, error) {
	p := &proofs{
		Files: Files{
			CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "client.pem"), Key: filepath.Join(dir, "client.key"),
		},
		serverCert: filepath.Join(dir, "server.pem"), serverKey: filepath.Join(dir, "server.key"),
	}
	p.cert = template(1)
	p.cert.IsCA, p.cert.BasicConstraintsValid, p.cert.KeyUsage = true, true, x509.KeyUsageCertSign
	if err := p.sign(p.cert, p.CA, filepath.Join(dir, "ca.key")); err != nil {
		return nil, err
	}
	server, client := template(2), template(3)
	server.IPAddresses = []net.IP{net.ParseIP(host)}
	client.Subject = pkix.Name{CommonName: "client"}
	return p, errors.Join(
		p.sign(server, p.serverCert, p.serverKey),
		p.sign(client, p.Cert, p.Key),
	)
}

func template(serial int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
}

// sign creates a key and its certificate, and writes both. The first certificate signs
// itself and all others.
func (p *proofs) sign(cert *x509.Certificate, certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	first := p.key == nil
	if first {
		p.key = key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, p.cert, &key.PublicKey, p.key)
	if err != nil {
		return err
	}
	if first {
		if p.cert, err = x509.ParseCertificate(der); err != nil {
			return err
		}
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(writePEM(certFile, "CERTIFICATE", der), writePEM(keyFile, "PRIVATE KEY", private))
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// protect creates the users and enables authentication.
func (s *Server) protect(ctx context.Context) (err error) {
	config, err := s.TLS()
	if err != nil {
		return err
	}
	scheme := "http://"
	if config != nil {
		scheme = "https://"
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{scheme + s.Endpoints()[0]}, TLS: config, DialTimeout: startTimeout, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	defer func() {
		if closed := c.Close(); !errors.Is(closed, context.Canceled) {
			err = errors.Join(err, closed)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	allowed := clientv3.GetPrefixRangeEnd(Allowed)
	for _, do := range []func() (any, error){
		func() (any, error) { return c.UserAdd(ctx, "root", s.options.Password) },
		func() (any, error) { return c.UserGrantRole(ctx, "root", "root") },
		func() (any, error) { return c.UserAdd(ctx, User, s.options.Password) },
		func() (any, error) { return c.RoleAdd(ctx, User) },
		func() (any, error) {
			return c.RoleGrantPermission(ctx, User, Allowed, allowed, clientv3.PermissionType(clientv3.PermReadWrite))
		},
		func() (any, error) { return c.UserGrantRole(ctx, User, User) },
		func() (any, error) { return c.AuthEnable(ctx) },
	} {
		if _, err = do(); err != nil {
			return err
		}
	}
	return nil
}
