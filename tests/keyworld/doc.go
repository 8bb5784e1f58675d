// Package keyworld is the world of heterotest behind an admin socket: its
// clients are sessions, and their memory is shared memory of this process
// (memfd), which the daemon gets by its descriptors.
//
//	heterotest.Run(t, keyworld.New(socket, keyworld.Options{Devices: …}))
//
// # Lock order
//
// No locks.
package keyworld
