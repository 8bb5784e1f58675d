package main

import (
	"context"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/coord/etcd"
	"github.com/hmcfs/hmcfs/tests/etcdkit"
	"github.com/hmcfs/hmcfs/tests/memcoord"
)

// simulated is a service in this process, without network delays.
type simulated struct{ *memcoord.Server }

func newSimulated() simulated { return simulated{memcoord.NewServer(memcoord.Options{})} }

func (s simulated) client(context.Context) (coord.Service, error) { return s.Client(), nil }

func (s simulated) away(_ context.Context, away bool) error {
	s.SetDown(away)
	return nil
}

func (s simulated) wipe(context.Context) error {
	s.Wipe()
	return nil
}

func (s simulated) holds() (memory, disk uint64) { return 0, 0 }

// real is a service on an etcd server.
type real struct{ *etcdkit.Server }

func (r *real) client(ctx context.Context) (coord.Service, error) {
	return etcd.Open(ctx, etcd.Options{Endpoints: r.Endpoints(), Prefix: "/hmcfs/scale/"})
}

func (r *real) away(ctx context.Context, away bool) error {
	if away {
		r.Stop()
		return nil
	}
	return r.Continue(ctx)
}

func (r *real) wipe(ctx context.Context) error { return r.Wipe(ctx) }

func (r *real) holds() (memory, disk uint64) { return r.Resident(), r.Disk() }
