package control

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// tlsConfig is the caller's with what the caller does not choose: both sides show
// certificates, and the one who listens has one for the name of who was asked
// for.
func (o *Options) tlsConfig(listens string) *tls.Config {
	c := o.TLS.Clone()
	c.MinVersion = tls.VersionTLS13
	c.ClientAuth = tls.RequireAndVerifyClientCert
	c.InsecureSkipVerify = false
	c.ServerName = listens
	return c
}

// listening is tls.Server that calls heard when the first message of TLS is whole.
func listening(heard func()) func(net.Conn, *tls.Config) *tls.Conn {
	return func(c net.Conn, own *tls.Config) *tls.Conn {
		choose := own.GetConfigForClient
		own.GetConfigForClient = func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			heard()
			if choose == nil {
				return nil, nil //nolint:nilnil // which is the one there is
			}
			return choose(info)
		}
		return tls.Server(c, own)
	}
}

// checkCertificate says whether the certificate of who connects is for the
// rank that it claims. Without TLS the proof says that.
func (o *Options) checkCertificate(c net.Conn, claimed wire.Rank) error {
	secure, ok := c.(*tls.Conn)
	if !ok {
		return nil
	}
	certificates := secure.ConnectionState().PeerCertificates
	if len(certificates) == 0 {
		return fmt.Errorf("%s shows no certificate: %w", claimed, ErrAuth)
	}
	name := o.PeerName(claimed)
	if name == "" {
		name = o.ownName(certificates[0], claimed)
	}
	if name == "" {
		return fmt.Errorf("no name in the certificate is known as that of %s: %w", claimed, ErrAuth)
	}
	if err := certificates[0].VerifyHostname(name); err != nil {
		return fmt.Errorf("the certificate is not that of %s: %w: %w", claimed, ErrAuth, err)
	}
	return nil
}

// ownName is the name in a certificate that is of a rank, or empty. One for many
// names is of none.
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
