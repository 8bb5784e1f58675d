// Package etcdkit runs an etcd server for a test: with a data directory of its own, on an
// otherwise unused port, and ended with the test, however that ends.
//
//	e := etcdkit.Start(t, etcdkit.Options{})
//	etcd.Open(ctx, etcd.Options{Endpoints: e.Endpoints(), TLS: e.TLS(), …})
//	e.Stop(); e.Continue(); e.Wipe()
//
// NewCluster starts a cluster of several members, any of which may be ended, stopped or wiped.
//
// It needs Debian's etcd-server.
package etcdkit
