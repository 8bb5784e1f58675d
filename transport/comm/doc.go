// Package comm implements the communicator: ranks put into and get from each
// other's registered memory, and send each other tags and small messages.
//
// # The life of a session
//
//	Connect ──> control connection, on which both agree on a transport, then
//	    │       Options.Channels data connections, and for other transports
//	    │       than TCP the side connection
//	    │       (Listen accepts the same from the other side)
//	    ▼
//	live: Share grants the peer a key, Put and Get use the peer's keys
//	    │
//	    ▼
//	Disconnect, the peer's Disconnect or death, a timeout
//	    │  every request completes with an error, every key of the session
//	    │  is void; tags and messages already received can still be read
//	    ▼
//	Connect again: a new session, new epochs, new keys
//
// Two ranks have at most one session. When both connect at once, the
// connection of the lower rank is the one that stays. A new session begins when
// nothing of the last one runs, so bytes that arrived for that one are never
// written after it.
//
// # Transports
//
// Data connections (TCP) always exist and carry every key. In addition, a session
// may have a transport with direct access to the peer's memory: RDMA, shared
// memory or UCX. Share offers the buffer to it, and once Share returns the key
// uses it. The side that puts or gets then checks keys, rights and ranges: doc.go
// of package window describes the consequences, and doc.go of each transport the
// peers it is used with. In a session over TCP that is encrypted, which is every
// one without Options.Plain, the data connections carry everything, since the
// other transports don't encrypt.
//
// Each rank lists the transports that it can use (Options.Transports), and the
// listening rank chooses the fastest common one: Peer.Transport. Peer.Because
// gives, for each faster transport, the reason why it is not used. Ranks without
// a common transport get no session: ErrNoTransport.
//
// # Order
//
//   - Puts and gets are not ordered among themselves. Fence waits until all that
//     were started before it are complete at the peer.
//   - SendTag fences first: a tag is received once the data of every put that was
//     started before it is visible. PutNotify is a put and its tag.
//   - Tags of one peer are received in the order in which they were sent. Tags and
//     messages are not ordered relative to each other.
//   - A PutNotify whose put fails or is refused sends no tag.
//
// A put is complete when the bytes are in place: the peer has confirmed it, or
// the transport that wrote them knows it.
// A tag after a put that was waited for costs no extra round trip.
//
// # Deadlines
//
// Every call that waits takes a context. A put or get whose context ends is still
// in progress: its local memory is held, and its bytes are unspecified, until the
// transfer or its session ends. Options.Timeout bounds that: a peer that makes no
// progress for so long loses its session.
//
// A machine that is dead or cut off is detected by the kernel within the same
// time: it probes idle connections (TCP keepalive), and gives up a data
// connection on which nothing is acknowledged.
//
// # Authentication
//
// A process may join as any rank that is not connected if it knows the job's
// secret: members trust each other not to claim another's rank. A rank that is
// connected can't be taken over, and an attempt does not disturb its session.
// With Options.TLS a certificate proves the rank.
//
// Peer.Cover says how a session is protected: by TLS, by the secret, or, with
// Options.Plain on both sides or on a Unix socket, not at all. All its
// connections are protected alike.
//
// # Lock order
//
// Communicator.mu comes before session.mu. Neither is held while a
// connection is made or written to, or a transfer is posted.
package comm
