// Package coord defines the coordination service that the nodes of a cluster share: small
// values under ordered names, some of which exist only while their writer is alive. It is
// the interface that hides etcd (see package etcd); doc.go of the packages members and
// keyindex describes the values that are kept in it.
//
// # Leases
//
// A value is bound to a lease or to none. A lease lives as long as its owner renews it,
// which the implementation does in the background. Only the service's clock counts, and
// only elapsed time: nothing depends on the wall-clock time of any machine.
//
// # Watching
//
// A watch starts after a given revision, usually that of a List, so that no change between
// the two is missed. It ends with ErrCompacted when the service has discarded the history
// after that revision; the watcher then lists again.
//
// # Lock order
//
// The package has no locks.
package coord
