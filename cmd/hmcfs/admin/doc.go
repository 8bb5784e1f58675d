// Package admin serves a mount's admin socket: the endpoints of package
// adminapi, the metrics for Prometheus and, when debugging, profiles.
//
// Who asks is told by the kernel (SO_PEERCRED, SO_PEERGROUPS) when the
// connection is made. Root and the user who mounted are answered; others are
// served bind and export alone, on a mount that lets them in, and only with a
// descriptor of the file: by name they could mean files that they can't reach.
//
// # What others can do
//
// To let others connect is to lend them descriptors and goroutines of the
// daemon, and to close what they send: closing a descriptor of a FUSE file
// system waits for that one's daemon, which may be theirs and never answer. So
// the connections of each other user are bounded, and each serves one request,
// on one goroutine, until all that came with it is closed. Nothing of what is
// received is asked for more than the kernel knows by itself before the store
// has checked the caller.
//
// # Lock order
//
//	shares.mu
//	  listener.mu
package admin
