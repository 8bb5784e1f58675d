// Package pages moves bytes between files in memory and TCP sockets without
// copying them into this process: by splice(2), through a pipe. Memory of this
// process can also be sent without a copy.
//
//	file ──FromFile──> Pipe ──Send──> socket       references to the file's pages
//	memory ──FromMemory──> Pipe ──ToSocket──> socket    references to its pages
//	socket ──Receive──> Pipe ──ToFile──> file      one copy, in the kernel
//
// A pipe that was filled from a file holds its pages: the number of bytes is
// known before the first is sent, whatever happens to the file meanwhile. No page
// is mapped here, so a truncated file or a full tier is an error and not a
// SIGBUS.
//
// Pages sent from a file stay in the socket's queue by reference until the peer
// has acknowledged them: bytes that are written to the file before that may be
// the ones that arrive.
//
// # Lock order
//
// Pool.mu is a leaf.
package pages
