// Package etcdkit runs an etcd server of its own for a test: with its data in
// a directory of its own, on a port that nobody else has, and ended with the
// test, however that ends.
//
//	e := etcdkit.Start(t, etcdkit.Options{})
//	etcd.Open(ctx, etcd.Options{Endpoints: e.Endpoints(), TLS: e.TLS(), …})
//	e.Stop(); e.Continue(); e.Wipe()
//
// NewCluster starts several that agree, of which any may be ended, stopped or
// wiped.
//
// It needs Debian's etcd-server.
package etcdkit
