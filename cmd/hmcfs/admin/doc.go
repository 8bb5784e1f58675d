// Package admin serves a mount's admin socket: the endpoints of package adminapi, the
// metrics for Prometheus and, when debugging, profiles. A [Server] listens on the socket;
// it passes requests to a [Backend], a [Sharer], a [Keyed] and a [Collector], which the
// daemon implements, and those about files to fs.Files.
//
// The kernel identifies the client when it connects (SO_PEERCRED, SO_PEERGROUPS). Root and
// the user who mounted may send every request. On a mount that admits other users, these
// may bind and export only with a descriptor of the file, since by name they could refer
// to files that they cannot reach; they may also use sessions, files, keys and events, where each
// user acts with its own permissions.
//
// # Sessions
//
// A session has one client of its Keyed. One goroutine reads the connection that holds the
// session: to notice its end and, after an upgrade, for calls in frames. It executes a call in a frame itself if
// nothing else has arrived and the call does not wait, has no timeout and is not one in the background, and each other one on a goroutine
// of its own. If its call takes longer than about a millisecond, and more with thousands of sessions, another goroutine reads (turns).
// Requests have goroutines of their own: memory, exports, collectives, lists and streams. Their descriptors are passed on a channel beside the
// connection, which comes with the greeting. Calls over HTTP have connections of their own. At the end no new call of the session begins, the client is
// closed, which ends the calls in progress, and these get a short time to be answered
// before their connections are closed. When the server ends, it does the same for all
// sessions, before it ends the sharing of memory. The open files of a session are closed after
// its last call.
//
// If the daemon has a holder, a session with frames can come back to the next daemon under its name, once. It is a new session
// here: the program registers memory, asks for the keys of the one before (adminapi.VerbContinue), opens files and repeats calls. The
// server does not know which names the daemon before has given, so it counts them by user.
//
// The calls of one user use at most a fixed amount of memory, by an estimate that exceeds
// their actual use. Further calls of keys wait over HTTP; those about files are refused, and so are all in frames, whose reader must
// not wait. A client that does not read its answers blocks
// only its own connections, each for a bounded time. A panic in a call in a frame ends its session, and one over HTTP its connection.
//
// # Untrusted users
//
// Other users who connect use descriptors and goroutines of the daemon. So the connections
// of each such user are limited, with a few more for each session of that user; sessions
// are limited too. Without a free descriptor a client gets one answer, which says that: a spare
// one is given up to accept its connection. Each connection without frames serves one request at a time, on one goroutine, until
// everything that came with the request is closed; one with frames has a limit of calls.
//
// Closing a descriptor of a FUSE filesystem waits for the server of that filesystem, which
// may belong to the client and never answer. So an owner.Guard receives the descriptors,
// and those of such filesystems never reach this process.
//
// # Lock order
//
//	shares.mu
//	  listener.mu
//	sessions.mu
//	  listener.mu
//	endings.mu
//	openFiles.mu
//	turns.mu
//	framed.mu
//	framed.replying
//	  framed.sending
//
// While a lock is held, only memory is accessed, connections are closed, and the spare descriptor is opened; framed.sending is
// held while a frame is written, and framed.replying while the descriptors of an answer are sent, too. But for these two,
// the last six are never held together with another lock.
package admin
