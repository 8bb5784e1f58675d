// Package frames encodes and decodes the binary frames of a session. docs/wire.md describes
// them byte by byte.
//
// A frame is a header of HeaderSize bytes and a body. Integers are little-endian. The client
// sends calls of keys and on files, requests, and cancellations; the daemon sends a greeting, answers, and the end
// of the session. The bodies of requests and of their answers are JSON, and their descriptors are passed on a Channel. A call has a number that the client chooses; every frame of its answer repeats
// it, so many calls can be in progress at once, and answers arrive in any order. A call that an earlier daemon may have
// carried out is marked (SetAgain).
//
// Decoding never trusts a length: it fails with ErrFrame for a body that does not contain what
// it announces, or contains more, and allocates at most a few times the size of the body.
//
// A Conn is the client's end of a connection, and a Poller reads the daemon's. Both poll for a bounded time before they sleep.
//
// # Lock order
//
// waiter.mu, of a Conn, is held with no other; while it is held only memory is accessed, and an epoll is opened, interrupted or closed.
package frames
