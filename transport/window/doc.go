// Package window defines the interface of a transport that accesses a peer's
// memory directly, without the peer's help: shared memory, UCX, RDMA.
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
// # Access checks
//
// The initiator's own copy of this library checks key, rights and range before
// each operation, and an owner's Revoke waits until the peer has closed its
// window. A peer that does not run this library and has received a window can go
// on using it: each provider therefore documents which peers it may be used with.
package window
