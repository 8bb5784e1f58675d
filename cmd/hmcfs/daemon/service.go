package daemon

import (
	"context"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/coord/etcd"
	"github.com/hmcfs/hmcfs/metadata/keyindex"
	"github.com/hmcfs/hmcfs/metadata/members"
)

// openService connects to etcd, where everything of one cluster is stored below one prefix.
func (d *Daemon) openService(ctx context.Context) (coord.Service, error) {
	service, err := etcd.Open(ctx, etcd.Options{
		Endpoints: d.others.parsed.Endpoints, Prefix: "/hmcfs/" + d.others.parsed.Name + "/",
		TLS: d.opts.Proofs.Etcd, Username: d.opts.Settings.EtcdUser, Password: d.opts.Proofs.EtcdPassword,
	})
	if err != nil {
		return nil, joinFault(err)
	}
	return service, nil
}

// openIndex starts the index of keys. With a fixed list of nodes there is none: the nodes
// are asked instead.
func (d *Daemon) openIndex(context.Context) error {
	o := d.others
	kept, ok := o.members.(*members.Members)
	if !ok {
		return nil
	}
	var err error
	o.index, err = keyindex.New(keyindex.Options{ //nolint:contextcheck // it lasts until the mount ends
		Service: o.service, Self: o.parsed.Node, Lease: kept.Lease, Logger: d.opts.Logger,
	})
	return err
}
