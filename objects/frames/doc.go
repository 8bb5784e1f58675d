// Package frames encodes and decodes the binary frames of a session. docs/wire.md describes
// them byte by byte.
//
// A frame is a header of HeaderSize bytes and a body. Integers are little-endian. The client
// sends calls and cancellations; the daemon sends a greeting, the lines of answers, and the end
// of the session. A call has a number that the client chooses; every frame of its answer repeats
// it, so many calls can be in progress at once, and answers arrive in any order.
//
// Decoding never trusts a length: it fails with ErrFrame for a body that does not contain what
// it announces, or contains more, and allocates at most a few times the size of the body.
//
// A Poller reads a connection, and polls for a bounded time before it sleeps.
//
// # Lock order
//
// No locks.
package frames
