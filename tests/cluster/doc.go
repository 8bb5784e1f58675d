// Package cluster tests several machines with one tree: the real program on each of several
// network namespaces at one switch, with a real etcd. It contains only tests.
package cluster
