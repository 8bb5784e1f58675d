// Package tcp carries one-sided puts and gets on a stream: a TCP connection,
// encrypted or not, or a Unix socket.
//
// A [Channel] is one connection. Both ends post transfers on it, and both
// serve those of the other: the bytes of a put are read from the socket
// straight into the registered memory that they are for, and those of a get
// are written straight from it.
//
// # The life of a transfer
//
//	Channel.Post(Transfer) ──> jobs ──> cut into fragments of a chunk
//	    │  each takes one of the channel's places for requests in flight;
//	    │  several channels may cut the same transfer, whoever is free
//	    ▼
//	PUT header and bytes            GET header
//	    ▼                               ▼
//	the peer checks key, rights     the peer checks the same, answers DATA
//	and range, reads the bytes      with the bytes, which are read into the
//	into place, answers ACK         local memory
//	    ▼                               ▼
//	the last fragment has been answered ──> Completer.Complete, once
//
// A transfer that is refused or fails stops being cut; it completes with its
// first error when no fragment of it is in flight. When a channel ends, its
// goroutines stop first and then the transfers complete with an error, so
// memory is never touched after a transfer has completed.
//
// # Who runs
//
//	reader  reads frames; never waits for the peer to read
//	writer  writes what is queued; may wait for the peer to read
//	stager  D2H into pinned slots, for puts from and gets of device memory
//	lander  H2D out of pinned slots, for puts to and gets into device memory
//
// The last two begin with the first transfer that needs them, so that D2H,
// network and H2D of different fragments go on side by side. What is small is
// written by whoever posts it, if it fits the socket without waiting.
//
// While small answers come fast, who waits for them reads them in the reader's
// place (Channel.Await), since to wake one goroutine after the other takes
// longer than the answer.
//
// What needs no slot has none: memory that a device shows to the host is sent
// from its map and received into it, pages of files that were lent
// (region.Table.RegisterSpan) are sent as they are, and bytes for a file go from
// the socket to the file in the kernel: package pages. A connection that is encrypted
// has slots for files.
//
// Since no reader waits for a writer, two channels that only write can't stop
// each other.
//
// # Lock order
//
// Channel.mu comes before Transfer.mu. Neither is held while a device moves
// bytes or a Completer is called, nor while a socket is written to, but for
// what fits without waiting.
package tcp
