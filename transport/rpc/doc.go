// Package rpc implements requests and answers between two ranks, over the packets
// of their communicator.
//
// A request names a method and has a body, whose format the caller defines. An
// answer has a body of up to MaxAnswer bytes, in as many packets as it takes, or
// an error: a code, which the two sides agree on, and a text. Every request
// carries its deadline, so that no work is done for a caller that has given up; a
// caller that gives up earlier sends a cancellation. docs/wire.md draws the
// packets; it calls a request a QUESTION.
//
// # Sessions
//
// A request and its answer belong to one session of the two ranks. When the
// session ends, pending requests fail with control.ErrDisconnected, and it is
// unknown whether they were carried out. The serving side is notified of the end
// (OnEnd), so that it can release what it kept for the session. An answer that is
// ready too late is dropped. In particular it is never sent to a later session,
// whose caller may be another process that numbers its requests from 1 again.
//
// A peer that breaks the rules loses its session, and so does one that answers
// neither a request nor a heartbeat for Options.Silence: a process that is
// stopped or hangs. Heartbeats are answered where packets are received, without a
// handler, so a request may take any amount of time. All pending requests then
// fail together, with a SilentError.
//
// # Queues
//
//	caller                                       peer
//	Call: up to MaxPending of a lane are in
//	      flight, further ones wait here     ──> MaxConcurrent of a lane and peer
//	                                             are served concurrently, each in
//	                                             its own goroutine; as many wait;
//	                                             further ones are refused,
//	      and retried until the           <──    with CodeBusy
//	      deadline
//
// A lane is a class of methods, and none waits for another. A handler that calls
// peers in turn belongs in another lane than the methods that it calls: otherwise
// two ranks whose handlers all call each other wait until the deadline.
//
// A peer that does not read its answers delays only itself: its requests keep
// their places until the answer is sent or late. Answers that wait for nothing,
// such as refusals, are queued up to a bound, beyond which the session ends.
//
// # Order
//
// Requests are not ordered among themselves. A notice is delivered in the
// goroutine that receives everything from a peer, so it comes after the notices
// that were sent before it in its session, and it may come before the caller of
// an earlier answer sees that answer.
//
// # Lock order
//
// Endpoint.mu comes before session.mu. peer.mu is a leaf, and so is
// session.postMu except for the communicator's locks. None is held while a
// handler runs, or during a send that may block.
package rpc
