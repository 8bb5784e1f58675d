// Package etcd is coord over an etcd cluster, 3.4 or later.
//
// # Steps
//
// Many entries at once go in transactions of up to a hundred, each entry with
// its condition in a transaction of its own inside: one taken name does not
// keep the others from being made.
//
// # Writes that fail
//
// A write without an answer may be carried out later: it waits in a connection
// that is stuck, or at a server that has no leader. Every write therefore depends
// on the revision of an entry of the service, its fence. After a write without an
// answer the fence gets another revision before the service asks anything else:
// what is there by then stays so.
//
// # What ends a watch
//
// The client library resumes watches by itself when a connection breaks, and
// says nothing. That is right as long as the cluster is what it was. One that
// has lost its data, or was restored from an old copy, counts revisions that
// have been before, and a watch would wait for ever for those to come. So every
// answer's revision is compared with the highest one that was there before the
// question; when it is lower, all watches end with coord.ErrCompacted, by which
// their owners list again.
//
// # Lock order
//
// Service.mu and fence.mu, leaves both.
package etcd
