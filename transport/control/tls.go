package control

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// tlsConfig returns the caller's configuration with the fields that the caller
// does not choose: both sides present certificates, and that of the listening
// side must be for the name of the rank that was addressed.
func (o *Options) tlsConfig(listens string) *tls.Config {
	c := o.TLS.Clone()
	c.MinVersion = tls.VersionTLS13
	c.ClientAuth = tls.RequireAndVerifyClientCert
	c.InsecureSkipVerify = false
	c.ServerName = listens
	return c
}

// listening returns tls.Server that calls heard when the first message of TLS is
// complete.
func listening(heard func()) func(net.Conn, *tls.Config) *tls.Conn {
	return func(c net.Conn, own *tls.Config) *tls.Conn {
		choose := own.GetConfigForClient
		own.GetConfigForClient = func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			heard()
			if choose == nil {
				return nil, nil //nolint:nilnil // nil selects the existing configuration
			}
			return choose(info)
		}
		return tls.Server(c, own)
	}
}

// checkCertificate verifies that the certificate of the connecting side is for
// the rank that it claims. Without TLS the proof shows that.
func (o *Options) checkCertificate(c net.Conn, claimed wire.Rank) error {
	secure, ok := c.(*tls.Conn)
	if !ok {
		return nil
	}
	certificates := secure.ConnectionState().PeerCertificates
	if len(certificates) == 0 {
		return fmt.Errorf("%s presented no certificate: %w", claimed, ErrAuth)
	}
	name := o.PeerName(claimed)
	if name == "" {
		name = o.ownName(certificates[0], claimed)
	}
	if name == "" {
		return fmt.Errorf("the certificate has no known name of %s: %w", claimed, ErrAuth)
	}
	if err := certificates[0].VerifyHostname(name); err != nil {
		return fmt.Errorf("the certificate does not belong to %s: %w: %w", claimed, ErrAuth, err)
	}
	return nil
}

// ownName returns the name in a certificate that belongs to a rank, or empty. A
// wildcard name belongs to none.
func (o *Options) ownName(c *x509.Certificate, claimed wire.Rank) string {
	if o.PeerRank == nil {
		return ""
	}
	for _, name := range c.DNSNames {
		if !strings.Contains(name, "*") && o.PeerRank(name) == claimed {
			return name
		}
	}
	return ""
}
