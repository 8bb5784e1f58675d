package daemon

import (
	"context"
	"crypto/rand"
	"net"
	"net/netip"
	"os"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/web"
)

// listenOutside occupies the addresses at which the mount is shown over TCP.
func (d *Daemon) listenOutside(ctx context.Context, back *undo) error {
	s := d.opts.Settings
	d.token = rand.Text()
	for _, one := range []struct {
		option, address string
		to              **web.Server
	}{
		{"metrics", s.Metrics, &d.metrics},
		{"http", s.HTTP, &d.page},
	} {
		if one.address == "" {
			continue
		}
		server, err := web.Listen(ctx, one.option, config.ListenAddress(one.address), d.opts.Logger.Named("web"))
		if err != nil {
			return err
		}
		*one.to = server
		back.push(server.Close)
	}
	return nil
}

// pageURL returns the address of the page with its token; empty if there is none. The token is behind
// the #, which browsers keep to themselves.
func (d *Daemon) pageURL() string {
	host, port, err := net.SplitHostPort(d.page.Addr())
	if err != nil {
		return ""
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return "http://" + net.JoinHostPort(host, port) + "/#" + d.token
}
