package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/daemon"
)

// readProofs reads the credentials of a mount in a cluster, for the other nodes and for
// etcd.
func readProofs(s *config.Settings) (daemon.Proofs, error) {
	var p daemon.Proofs
	if !s.IsCluster() {
		return p, nil
	}
	var err error
	if s.SecretFile != "" {
		if p.Secret, err = readSecret(s.SecretFile, false); err != nil {
			return p, err
		}
		p.Warnings = append(p.Warnings, openToOthers(s.SecretFile)...)
		if s.TLSCert == "" {
			p.Warnings = append(p.Warnings, guessable(s.SecretFile, p.Secret)...)
		}
	}
	if s.TLSCert != "" {
		if p.TLS, err = readTLS(s.TLSCert, s.TLSKey, s.TLSCA); err != nil {
			return p, err
		}
		p.TLS.ClientCAs = p.TLS.RootCAs
		p.Warnings = append(p.Warnings, openToOthers(s.TLSKey)...)
	}
	parsed, err := s.Cluster()
	if err != nil {
		return p, usage(err)
	}
	if parsed.EndpointTLS {
		if p.Etcd, err = readTLS(s.EtcdCert, s.EtcdKey, s.EtcdCA); err != nil {
			return p, err
		}
	}
	if s.EtcdPasswordFile != "" {
		text, err := os.ReadFile(s.EtcdPasswordFile)
		if err != nil {
			return p, fmt.Errorf("read the etcd password: %w", err)
		}
		if p.EtcdPassword = strings.TrimRight(string(text), "\r\n"); p.EtcdPassword == "" {
			return p, usage(fmt.Errorf("the password in %s is empty", s.EtcdPasswordFile))
		}
		p.Warnings = append(p.Warnings, openToOthers(s.EtcdPasswordFile)...)
	}
	return p, nil
}

// readTLS reads a certificate with its key, and certificate authorities; each may be
// omitted.
func readTLS(certFile, keyFile, caFile string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if certFile != "" {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", certFile, keyFile, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if caFile != "" {
		text, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("certificate authorities: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, usage(errors.New("authorities: " + caFile + " contains no PEM certificate"))
		}
	}
	return c, nil
}

// openToOthers warns about a secret that every user of the machine can read.
func openToOthers(path string) []string {
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm()&0o004 == 0 {
		return nil
	}
	return []string{fmt.Sprintf("every user can read %s; chmod 600 it", path)}
}
