// Package etcd implements coord.Service on an etcd cluster, version 3.4 or later.
//
// # Batches
//
// Operations on many entries are sent in transactions of up to a hundred. Each entry has
// its condition in a nested transaction of its own, so one name that exists already does
// not prevent the others from being created.
//
// # Writes that fail
//
// A write that was not answered may still take effect later: the request may be waiting in
// a stuck connection, or at a server that has no leader. Every write is therefore
// conditional on the revision of one entry of the Service, its fence. After an unanswered
// write the fence gets a new revision before the Service sends any other request; from then
// on the outcome of that write can no longer change.
//
// # What ends a watch
//
// The client library silently resumes watches when a connection breaks. That is correct as
// long as the cluster keeps its history. A cluster that has lost its data, or was restored
// from an old copy, counts through revisions that have existed before, and a watch would
// wait for them for ever. So the revision of every answer is compared with the highest one
// that was known before the request; when it is lower, all watches end with
// coord.ErrCompacted, and their owners list again.
//
// # Lock order
//
// Service.mu and fence.mu are both leaves.
package etcd
