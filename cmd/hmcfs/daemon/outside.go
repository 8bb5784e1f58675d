package daemon

import (
	"context"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/config"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/web"
)

// listenOutside occupies the addresses at which the mount is shown over TCP.
func (d *Daemon) listenOutside(ctx context.Context, back *undo) error {
	s := d.opts.Settings
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
