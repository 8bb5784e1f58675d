// Package rpc is questions and answers between two ranks, over the packets of
// their communicator.
//
// A question names a method and has a body; what is in it is up to who asks.
// An answer has a body of up to MaxAnswer bytes, in as many packets as it
// takes, or an error: a code, which the two sides agree on, and a text. Every
// question has a deadline that travels with it, so that nobody works for an
// asker who has given up; an asker who gives up earlier says so. docs/wire.md
// draws the packets.
//
// # Sessions
//
// A question and its answer belong to one session of the two ranks. When that
// ends, questions under way fail with control.ErrDisconnected, and whether
// they were carried out is not known. Who answers is told that the session
// has ended (OnEnd), so that what was kept for it can go. An answer that is
// ready too late is sent to nobody: least of all to a later session, whose
// asker may be another process that counts its questions from 1 again.
//
// A peer that breaks the rules loses its session, and so does one that answers
// neither a question nor a heartbeat for Options.Silence: a process that is
// stopped or hangs. Heartbeats are answered where packets are received, without a
// handler, so a question may take as long as it likes. All questions under way
// fail together then, with a SilentError.
//
// # Who waits
//
//	asker                                        peer
//	Call: MaxPending of a lane are on their way,
//	      the next ones wait here            ──> MaxConcurrent of a lane and peer
//	                                             are answered at once, in
//	                                             goroutines of their own; as many
//	                                             wait; the next ones are refused,
//	      and are asked again until the   <──    with CodeBusy
//	      deadline
//
// A lane is a class of methods, and none waits for another. A handler that asks
// peers in its turn belongs into another lane than what it asks for: else two
// ranks whose handlers all ask each other wait until the deadline.
//
// A peer that does not read its answers holds up itself alone: its questions
// keep their places until the answer is sent, or late. Answers that wait for
// nothing, such as refusals, are queued up to a bound, and beyond it the
// session ends.
//
// # Order
//
// There is none between questions. A notice is handed over in the goroutine
// that receives everything of a peer, so it comes after the notices that were
// sent before it in its session, and it may come before an answer that was sent
// earlier is seen by its caller.
//
// # Lock order
//
// Endpoint.mu comes before session.mu. peer.mu is a leaf, and so is
// session.postMu but for the communicator's locks. None is held while a handler
// runs, or while something is sent that may have to wait.
package rpc
