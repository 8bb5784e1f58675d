// Package domain implements point-to-point messages. A domain is a set of ranks of a job
// that send to and receive from each other, by rank and tag.
//
//	d, err := domain.New(communicator, domain.Options{Book: addresses})
//	c, err := d.NewComm(ctx, "stage", []wire.Rank{2, 0})  // 2 is rank 0 here
//	err = c.Send(ctx, view, 1, tag)
//
// Domains holds the domains of a communicator, Comm is one domain, and a Request is a send
// or a receive. A View is a range of elements in a registered buffer. Inside, a pair holds
// the state of this rank and one peer in a domain.
//
// # The life of a domain
//
//	NewComm ──> every pair is connected; the higher rank connects
//	    │       the ranks exchange name, list and window
//	    ▼
//	formed: no more connections, registrations or agreements are needed
//	    │
//	    ▼
//	Destroy, a peer's Destroy, or the end of a session: the requests of the pair
//	complete with an error; other pairs and other domains continue
//
// If a pair of a domain has lost its session, destroy the domain and make it anew.
//
// # One message
//
// The sender announces a message in an envelope, which holds the type and count of each
// buffer. The receiver matches it with the oldest posted receive of the tag; if there is
// none, it adds the message to the unexpected ones. The bytes arrive in one of three ways:
//
//	eager    after the envelope, without a request: up to Options.Eager for each
//	         buffer of host memory, while the receiver's window lasts. The send is
//	         complete when they are written. The receiver copies them once: to their
//	         destination if the receive is posted, otherwise to its window.
//	fetched  the receiver gets them, with a key that it has received once for the
//	         buffer. The send is complete when the receiver reports it.
//	asked    many small buffers that were announced: the receiver makes one request,
//	         and they come as one stream, instead of with one get for each.
//
// The receiver gets, instead of the sender putting, to save round trips: envelope, get and
// data take 1.5 round trips until the bytes arrive and 2 until the send completes. With
// puts, envelope, place, data, acknowledgement and notice would take 2.5 until the
// receiver knows that the bytes are complete.
//
// Device memory is fetched by the transport's own pipelines, at both ends. Send alone
// first copies small device memory to the host, so that it does not depend on the receive
// either.
//
// # Credit
//
// A window (Options.Window) bounds the memory that a peer's messages use here, in one
// domain, before they are received. Both sides count it, by the same formula; the receiver
// returns credit whenever a quarter of the window is free again. The last eighth is
// reserved for envelopes: once the rest is used up, messages are announced instead of
// sent, so that messages of another tag still get through. A peer that exceeds its window
// loses its session.
//
// # Mismatches
//
// If a matched send and receive differ in the number of buffers, a type or a count, both
// sides end with a MismatchError, and the pair continues. A send that had already
// completed gets the error from Flush.
//
// # Cancellation
//
// A blocking operation whose context ends is withdrawn. A receive without a message is
// removed. A send that was announced asks its receiver to release it, and waits for the
// answer; if it has been fetched meanwhile, it is complete. If the receiver does not
// answer within Options.Grace, its keys are revoked, so that it can't mistake later
// content of the buffers for the message.
//
// # Deadlocks
//
// Ranks that wait for each other in a cycle time out with an error that names the cycle. A
// request that has waited for half of its time sends a probe to the rank that it waits
// for, and again after half of the remaining time. A probe carries the ranks that it has
// passed. A rank that receives one while it waits itself appends its number and passes the
// probe on to the ranks that it waits for, in any domain; a probe that returns to the rank
// where it began has found a cycle, and is reported there. A rank passes on each probe
// once, and never one that contains the rank itself: so a probe ends after at most as many
// steps as there are ranks.
//
// A rank waits for another while one of its goroutines is inside Wait or a blocking call.
// If there are several goroutines, another one might have broken the cycle: therefore a
// cycle is only reported with a timeout.
//
// # Lock order
//
// Domains.mu, then Comm.mu, then pair.mu, then mail.mu and chases.mu, then the
// communicator's. pair.keyMu comes before the communicator's, and is held with no other
// lock of this package. No lock is held during a wait for a peer or a device, or a copy of
// more than 256 KiB, except keyMu while a key is granted or revoked. Two pairs share no
// lock, except while a packet looks up its domain.
package domain
