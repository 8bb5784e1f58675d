// Package memcoord implements coord.Service in the memory of one process, for tests of the code
// that uses the interface and for simulations of many nodes. A Server is the service, and a
// Client the connection of one node to it; both can be made to fail.
//
// A lease is kept, without messages, for as long as the client is connected to the server.
// After the connection is cut or the client is closed, the lease expires after its time to
// live; Kill ends it at once, as if that time had passed.
//
// # Lock order
//
// Server.mu alone. It guards all state of the server, including the parts that are in clients,
// leases and watches.
package memcoord
