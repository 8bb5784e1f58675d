// Package nowait reads from and writes to a socket what is possible without
// waiting. A goroutine that reads from a peer may answer this way: if it waited for
// the peer to read, two peers could wait for each other forever.
package nowait
