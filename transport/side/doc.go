// Package side runs the side connection of a session: on it each rank offers the
// other memory that the peer's transport can open directly, together with the
// descriptors needed for that, and withdraws the offers.
//
// # One window
//
//	owner                              peer
//	Share: Provider.Export
//	       OFFER ───────────────────>  Provider.Import, the window exists
//	       <─────────────────── ACCEPT  (DECLINE: it can't be opened here)
//	Share returns                      Use finds the window by its key
//	Withdraw, or Buffer.Close
//	       WITHDRAW ────────────────>  Use no longer finds it; when the
//	                                   operations in progress have ended:
//	                                   Window.Close
//	       <──────────────── WITHDRAWN
//	Export.Close
//
// Since Share waits for the answer, a key uses the window as soon as Share has
// returned. A key without a window works on the data connections, as every key
// does; so an operation that finds no window, because it has just been withdrawn,
// is decided there.
//
// # What is not trusted
//
// Descriptors are accepted only with the frame that names their number, at most
// wire.MaxFiles; any others are closed, and end the connection. So does a frame
// that breaks a rule, a peer that answers a question that was not asked, one that
// does not read its answers, and one that does not answer within the timeout.
// Offers are opened by the provider, which checks them; the number that may be
// open at once is bounded.
//
// # Shutdown
//
// The connection and the provider are closed first, so that operations end; then,
// when no operation is running any more, the windows and exports.
//
// # Lock order
//
// Side.mu is a leaf. It is not held during calls of the provider or writes to a
// connection.
package side
