// Package members maintains the list of the cluster's nodes: their names, addresses,
// devices and incarnations. It is not involved in their communication, but defines what a node
// reports about it (Peer, Traffic, KeyConflict).
//
// # Sources of the view
//
// With a coordination service, every node keeps one record there under a lease and watches
// the records of the others. Beside the record it keeps a mark without a lease, which it
// removes when it leaves. A node whose record is gone but whose mark remains has lapsed: it
// died or is cut off. It stays in the view, with the time of the lapse, until it is back or
// Forget removes it. A node that comes back after a death has a new epoch. While the
// service is unreachable, the last known view remains in use, and State reports since when.
//
// With a static list, the nodes are those of the list, except a node that was forgotten and
// has not been met since. Nodes learn what the list lacks (devices, epoch) from each other
// when they connect.
//
// # Names
//
// A node's rank in the communicator is a hash of its name, so both sides of a first
// connection know it without asking another node. Two names with the same rank can't be in
// one cluster: Join refuses the second.
package members
