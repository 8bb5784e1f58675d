// Package clustertest runs several nodes in one process, for tests: each with a store over a
// host tier and a simulated device, and all of them joined in a cluster.
//
// # Lock order
//
// View.mu is a leaf.
package clustertest
