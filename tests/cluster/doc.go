// Package cluster tests many machines with one tree: the real program on
// several machines, which are network namespaces at one switch, with a real
// etcd. It has tests alone.
package cluster
