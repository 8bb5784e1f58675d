// Package etcd is coord over an etcd cluster.
//
// # Lock order
//
// Its locks are leaves.
package etcd

import clientv3 "go.etcd.io/etcd/client/v3"

// Service is a coord.Service.
type Service struct{ client *clientv3.Client }
