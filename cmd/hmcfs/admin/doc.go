// Package admin serves a mount's admin socket: the endpoints of package
// adminapi, the metrics for Prometheus and, when debugging, profiles.
//
// Who asks is told by the kernel (SO_PEERCRED, SO_PEERGROUPS) when the
// connection is made. Root and the user who mounted are answered; others are
// served, on a mount that lets them in, bind and export alone, only with a
// descriptor of the file: by name they could mean files that they can't reach;
// and sessions, keys and events, where each acts with the rights of its own user.
//
// # Sessions
//
// A session has one client of its Keyed. Its held connection is read for
// nothing but its end, by one goroutine; then no call of it begins any more,
// the client is closed, which ends the calls under way, and these get a little
// time to be answered before their connections are closed. The end of the
// server does the same to all sessions, before it ends what shares memory.
//
// The calls of one user take no more than a fixed amount of memory, by a
// measure that is greater than what they take: further ones wait. A client
// that reads no answers holds its own connections only, each for a bounded
// time.
//
// # What others can do
//
// To let others connect is to lend them descriptors and goroutines of the
// daemon. So the connections of each other user are bounded, with some more for
// each of that user's sessions, which are bounded too; and each serves one request, on
// one goroutine, until all that came with it is closed.
//
// Closing a descriptor of a FUSE file system waits for that one's server, which
// may be theirs and never answer. So descriptors are received by an
// owner.Guard, and those of such file systems never come to this process.
//
// # Lock order
//
//	shares.mu
//	  listener.mu
//	sessions.mu
//	  listener.mu
//	budget.mu, endings.mu
//
// A lock is held across nothing but memory, and the closing of connections. The
// last two have nothing above or below them.
package admin
