// Package keyworld implements the world of heterotest behind an admin socket: its clients are
// sessions, and their memory is shared memory of this process (memfd), whose descriptors are
// passed to the daemon.
//
//	heterotest.Run(t, keyworld.New(socket, keyworld.Options{Devices: …}))
//
// # Lock order
//
// No locks.
package keyworld
