// Package pages moves bytes between files of memory and TCP sockets without
// bringing them to this process: by splice(2), through a pipe. Memory of this process
// can be sent without a copy, too.
//
//	file ──FromFile──> Pipe ──Send──> socket       references to the file's pages
//	memory ──FromMemory──> Pipe ──ToSocket──> socket    references to its pages
//	socket ──Receive──> Pipe ──ToFile──> file      one copy, in the kernel
//
// A pipe that was filled from a file holds its pages: how many bytes there are
// is known before the first is sent, whatever becomes of the file meanwhile. No
// page is mapped here, so a file that is cut, or a tier that is full, is an
// error and no SIGBUS.
//
// What was sent from a file's pages is in the socket's queue as these pages,
// until the peer has confirmed it: bytes that are written to the file before
// may be what arrives.
//
// # Lock order
//
// Pool.mu is a leaf.
package pages
