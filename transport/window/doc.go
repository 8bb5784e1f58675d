// Package window is what a transport offers that reaches the memory of a peer
// by itself, without the peer's help: shared memory, UCX, RDMA.
//
// # From a key to a window
//
//	owner                                   peer
//	Keys.Grant ──> key
//	Provider.Export(buffer) ──> Offer ───────────> Provider.Import ──> Window
//	                     (on the session's side connection)   │
//	                                                          ▼
//	                                  Put, Get with the key: Window.Start
//	Revoke, end of session ──> withdrawn ────────> Window.Close
//	Export.Close <──────────── closed ────────────────┘
//
// A buffer that a provider can't export is reached over the session's data
// connections, which carry every key.
//
// # Who checks
//
// The peer's own side of the library checks key, rights and range before each
// operation, and an owner's Revoke waits until the peer has closed its window.
// A peer that is not this library, and that was given a window, can go on to
// use it: a provider says in its documentation with which peers it therefore may be used
// with.
package window
