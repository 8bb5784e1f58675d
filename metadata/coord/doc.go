// Package coord is what several machines agree on: small values under ordered
// names, some of which live only as long as whoever wrote them. It is the seam
// below which etcd lies; doc.go of the packages members and keyindex says what
// is kept in it.
//
// # Leases
//
// A value is bound to a lease or to none. A lease lives as long as its owner
// keeps telling the service so, which the implementation does by itself; it is
// the service's clock that counts, and only how much time has passed: nothing
// depends on what time it is, here or there.
//
// # Watching
//
// A watch begins behind a revision, that of a List, so that between the two
// nothing is missed. It ends with ErrCompacted when the service has forgotten
// what came behind that revision; then the watcher lists again.
//
// # Lock order
//
// The package has no locks.
package coord
