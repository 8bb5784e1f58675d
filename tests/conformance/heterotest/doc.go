// Package heterotest is the conformance suite of [hetero.Client]: the cases
// that the seed system is accepted by, each named by its letter and number, and
// those that its authors could not catch. The same list runs in the daemon's
// process, through the admin socket, and against the real binary:
//
//	heterotest.Run(t, world)
//
// A [World] makes clients and their memory. One world serves all cases, one
// after the other: each has clients, memory and keys of its own. Content
// depends on its position, so that a shifted or stale byte is seen, and blobs
// lie in memory with bytes before, between and behind them that nobody may
// touch.
//
// # Lock order
//
// No locks.
package heterotest
