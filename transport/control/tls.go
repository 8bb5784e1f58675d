package control

import (
	"crypto/tls"
	"fmt"
	"net"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// tlsConfig is the caller's with what is not his to choose: both sides show
// certificates, and the one who listens is who was asked for.
func (o *Options) tlsConfig(server wire.Rank) *tls.Config {
	c := o.TLS.Clone()
	c.MinVersion = tls.VersionTLS13
	c.ClientAuth = tls.RequireAndVerifyClientCert
	c.InsecureSkipVerify = false
	c.ServerName = RankName(server)
	return c
}

// checkCertificate says whether the certificate of who connects is for the
// rank that it claims. Without TLS the proof says that.
func checkCertificate(c net.Conn, claimed wire.Rank) error {
	secure, ok := c.(*tls.Conn)
	if !ok {
		return nil
	}
	certificates := secure.ConnectionState().PeerCertificates
	if len(certificates) == 0 {
		return fmt.Errorf("%s shows no certificate: %w", claimed, ErrAuth)
	}
	if err := certificates[0].VerifyHostname(RankName(claimed)); err != nil {
		return fmt.Errorf("the certificate is not that of %s: %w: %w", claimed, ErrAuth, err)
	}
	return nil
}
