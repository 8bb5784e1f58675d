// Package tcp carries one-sided puts and gets over a stream: a TCP connection,
// encrypted or not, or a Unix socket.
//
// A [Channel] is one connection. Both ends post transfers on it, and both serve
// those of the other: the bytes of a put are read from the socket straight into
// their registered memory, and those of a get are written straight from it.
//
// # The life of a transfer
//
//	Channel.Post(Transfer) ──> jobs ──> cut into fragments of a chunk
//	    │  each takes one of the channel's places for requests in flight;
//	    │  several channels may cut the same transfer, each when it is free
//	    ▼
//	PUT header and bytes            GET header
//	    ▼                               ▼
//	the peer checks key, rights     the peer checks the same, answers DATA
//	and range, reads the bytes      with the bytes, which are read into the
//	into place, answers ACK         local memory
//	    ▼                               ▼
//	the last fragment has been answered ──> Completer.Complete, once
//
// A transfer that is refused or fails is not cut further; it completes with its
// first error once no fragment of it is in flight. When a channel ends, its
// goroutines stop first and then the transfers complete with an error, so memory
// is never accessed after a transfer has completed.
//
// # Goroutines
//
//	reader  reads frames; never waits for the peer to read
//	writer  writes what is queued; may wait for the peer to read
//	stager  D2H into pinned slots, for puts from and gets of device memory
//	lander  H2D out of pinned slots, for puts to and gets into device memory
//
// The last two start with the first transfer that needs them, so that D2H,
// network and H2D of different fragments overlap. Small frames are written by the
// goroutine that posts them, if they fit the socket without waiting.
//
// While small answers come fast, the waiting goroutine reads them in place of the
// reader (Channel.Await), since waking one goroutine after another takes longer
// than the answer.
//
// Slots are used only where they are needed: memory that a device maps for the
// host is sent from that map and received into it; pages of files that are passed
// without copying (region.Table.RegisterSpan) are sent as they are; and bytes for
// a file go from the socket to the file in the kernel (package pages). An
// encrypted connection uses slots for files.
//
// Since no reader waits for a writer, two channels that only write can't block
// each other.
//
// # Lock order
//
// Channel.mu comes before Transfer.mu. Neither is held while a device moves bytes
// or a Completer is called, nor while a socket is written to, except for data
// that fits without waiting.
package tcp
