// Package domain is point to point: domains of some ranks of a job, which send
// to and receive from each other by rank and tag.
//
//	d, err := domain.New(communicator, domain.Options{Book: addresses})
//	c, err := d.NewComm(ctx, "stage", []wire.Rank{2, 0})  // 2 is rank 0 here
//	err = c.Send(ctx, view, 1, tag)
//
// # The life of a domain
//
//	NewComm ──> every pair is connected, the higher rank connects
//	    │       every rank is told name, list and window, and tells the same
//	    ▼
//	formed: nothing is connected, registered or agreed on any more
//	    │
//	    ▼
//	Destroy, a peer's Destroy, the end of a session: the requests of the pair
//	complete with an error; other pairs and other domains go on
//
// A domain whose pair has lost its session is destroyed, and made anew.
//
// # One message
//
// The sender announces a message in an envelope, which holds the type and
// count of each buffer. The receiver looks for a receive that was begun for the
// tag, the oldest first; if there is none, the message waits among the
// unexpected ones. The bytes come in one of three ways:
//
//	eager    behind the envelope, unasked: up to Options.Eager for each
//	         buffer of host memory, while the receiver's window lasts. The send
//	         is complete when they are written. The receiver copies them once,
//	         to their place if that is known, else to its window.
//	fetched  the receiver gets them, with a key that it was given once for the
//	         buffer. The send is complete when the receiver says so.
//	asked    many small buffers that were announced: one request, and they
//	         come as one stream. Fetching each would take as many gets.
//
// The receiver fetches, and the sender does not put, because of the round
// trips: envelope, get and data are 1.5 to the bytes and 2 to the end of the
// send. If the sender put, envelope, place, data, acknowledgement and notice
// would be 2.5 to the bytes, as who receives must hear that they are whole.
//
// Device memory is fetched by the transport's own pipelines, at both ends. Only
// Send copies small device memory to the host first, so that it needs no
// receive either.
//
// # Credit
//
// A window (Options.Window) bounds what a peer's messages take here in one
// domain before they are received. Both sides count it, by the same formula;
// what is received is given back by the quarter. The last eighth of it is for
// envelopes alone: where the rest is used up, messages are announced instead of
// sent, so that those of another tag still get through. A peer that takes more
// than it has loses its session.
//
// # Mismatches
//
// A send and a receive that meet and don't agree in the number of buffers, a
// type or a count end with a MismatchError on both sides, and the pair goes on.
// A send that was complete before hears of it by Flush.
//
// # Giving up
//
// A blocking operation whose context ends is taken back. A receive that has
// met nothing is gone. A send that was announced asks its receiver to let go,
// and waits for the answer; one that has been fetched meanwhile is complete. A
// receiver that does not answer within Options.Grace has its keys revoked, so
// that it never takes for the message what is written there next.
//
// # Cycles
//
// Ranks that wait for each other in a ring end in a timeout, which names the
// ring. Who has waited for half of its time sends a probe to the rank that it
// waits for, and again after half of what is left. A probe carries the ranks
// that it has passed. A rank that gets one, and waits itself, adds its number and passes
// it on to the rank that it waits for, in whichever domain; a probe that comes to
// the rank where it began has gone round, and is reported there. A rank passes on
// each probe once, and none that it is in: so it ends, after at most as many
// steps as there are ranks.
//
// A rank waits for another while a goroutine of it is inside Wait or a blocking
// call. With several of them, a cycle that is found may be one that another
// goroutine would have broken: it is only told when time is over anyway.
//
// # Lock order
//
// Domains.mu, then Comm.mu, then pair.mu, then mail.mu and chases.mu, then the
// communicator's. pair.keyMu comes before the communicator's, and is held with
// none of ours. No lock is held while a peer, a device or memory of more than
// 256 KiB is waited for, but keyMu, while a key is given or revoked. Two pairs
// share no lock, but for the moment in which a packet finds its domain.
package domain
