// Package comm is the communicator: ranks that put into and get from each
// other's registered memory, and tell each other tags and small messages.
//
// # The life of a session
//
//	Connect ──> control connection, on which both agree on a transport, then
//	    │       Options.Channels data connections, and for other transports
//	    │       than TCP the side connection
//	    │       (Listen lets the same happen from the other side)
//	    ▼
//	live: Share gives the peer a key, Put and Get use the peer's keys
//	    │
//	    ▼
//	Disconnect, the peer's Disconnect or death, a timeout
//	    │  every request completes with an error, every key of the session
//	    │  is void; tags and messages that have come can still be received
//	    ▼
//	Connect again: a new session, new epochs, new keys
//
// Two ranks have at most one session. When both connect at once, the
// connection of the lower rank is the one that stays.
//
// # Transports
//
// Data connections (TCP) are always there and carry every key. Besides them a
// session may have a transport that reaches the peer's memory by itself: RDMA,
// shared memory or UCX. Share offers it the buffer, and when Share returns the
// key works by it. Keys, rights and ranges are checked by the side that puts or
// gets then: doc.go of package window says what that means, and doc.go of each
// transport which peers it is used with. In a session over TCP that is encrypted, which all are but
// with Options.Plain, the data connections carry everything, since the others don't
// encrypt.
//
// Both ranks name what they can use (Options.Transports), and the one that
// listens chooses the fastest: Peer.Transport. Peer.Because says for each
// faster one why it is not that. Ranks without one in common have no session:
// ErrNoTransport.
//
// # Order
//
//   - Puts and gets are not ordered among themselves. Fence waits until all
//     that were begun before it are done at the peer.
//   - SendTag fences first: a tag is received when the data of every put
//     that was begun before it is visible. PutNotify is a put and its tag.
//   - Tags of one peer are received in the order in which they were sent. Tags
//     and messages are not ordered among each other.
//   - A PutNotify whose put fails, or is refused, sends no tag.
//
// A put is done when the bytes are in place: the peer has said so, or the
// transport that put them there knows it.
// A tag after a put that was waited for costs no extra round trip.
//
// # Deadlines
//
// Every call that waits takes a context. A put or get whose context ends is
// still under way: its local memory is held, and its bytes are unspecified,
// until its session or the transfer ends. Options.Timeout bounds that: a peer
// that does not go on for so long loses its session.
//
// A machine that is dead, or cut off, is found by the kernel within the same
// time: it asks an idle connection's peer whether it is there, and gives up a
// data connection that confirms nothing.
//
// # Who may come in
//
// A rank is whoever knows the job's secret and claims a rank that is not
// connected: members trust each other not to take another's place. A rank that
// is connected can't be taken, and its session is not touched by who tries.
// With Options.TLS a certificate says which rank somebody is.
//
// A session is covered as Peer.Cover says: by TLS, by the secret, or, with
// Options.Plain on both sides or on a Unix socket, not at all. All its connections
// are covered alike.
//
// # Lock order
//
// Communicator.mu comes before session.mu. Neither is held while a
// connection is made or written to, or a transfer is posted.
package comm
