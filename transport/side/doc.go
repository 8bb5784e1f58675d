// Package side runs the side connection of a session: on it each rank offers
// the other memory that its transport can open by itself, with the descriptors
// that this takes, and takes the offers back.
//
// # One window
//
//	owner                              peer
//	Share: Provider.Export
//	       OFFER ───────────────────>  Provider.Import, the window is there
//	       <─────────────────── ACCEPT  (DECLINE: it can't be opened here)
//	Share returns                      Use finds the window by its key
//	Withdraw, or Buffer.Close
//	       WITHDRAW ────────────────>  nobody finds it any more; when the
//	                                   operations under way have ended:
//	                                   Window.Close
//	       <──────────────── WITHDRAWN
//	Export.Close
//
// Since Share waits for the answer, a key works by the window from its return
// on. A key without a window works on the data connections, which every key
// does; so a use that finds none, because it was withdrawn just then, is
// decided there.
//
// # What is not trusted
//
// Descriptors come only with the frame that names their number, at most
// wire.MaxFiles; what else comes is closed, and ends the connection. So does a
// frame that breaks a rule, a peer that answers what was not asked, one that
// does not read its answers, and one that does not answer for as long as the
// timeout. Offers are opened by the provider, which checks them; how many may
// be open at once is bounded.
//
// # The end
//
// First the connection is closed and the provider, so that operations end;
// then, when nobody is inside them any more, windows and exports.
//
// # Lock order
//
// Side.mu is a leaf. It is not held while the provider is called or a
// connection is written to.
package side
