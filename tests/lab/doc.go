// Package lab provides the cluster that tests/chaos and tests/attack attack: nodes with real
// mounts, each in a network namespace of its own, connected by a relay. Clusters that use etcd
// also have three members of it, in namespaces of their own.
//
// The calling process must have mount and process namespaces of its own: whatever Close leaves
// behind ends with that process.
//
// # Lock order
//
// Each Node has one lock. The only waits while it is held are those for the start and the end
// of the node's daemon.
package lab
