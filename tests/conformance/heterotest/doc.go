// Package heterotest is the conformance suite of [hetero.Client]: the acceptance cases of the
// seed system, each identified by its letter and number, and further cases that the authors of
// the seed could not detect. The same list runs in the daemon's process, through the admin
// socket, and against the real binary:
//
//	heterotest.Run(t, world)
//
// A [World] creates clients and their memory. One world serves all cases, one after the other;
// each case has clients, memory and keys of its own. Content depends on its position, so that
// a shifted or stale byte is detected. The memory of blobs has guard bytes before, between and
// after them that must not change.
//
// # Lock order
//
// No locks.
package heterotest
