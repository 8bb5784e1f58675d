// Package memcoord is a coord.Service in the memory of one process: for tests of
// what is built on the seam, and for simulations of many nodes. A Server is
// the service, a Client one node's way to it; both can be made to fail.
//
// Leases are kept for as long as there is a way from the client to the server,
// without a message. With the way cut, or the client closed, a lease ends after
// its time; Kill ends it at once, as if that had passed.
//
// # Lock order
//
// Server.mu alone. It guards everything that belongs to the server, also what
// lies in clients, leases and watches.
package memcoord
