// Package clustertest runs several nodes in one process, for tests: each has a store with a
// host tier and a simulated device, and all of them are joined in a cluster.
//
// # Lock order
//
// View.mu is a leaf.
package clustertest
