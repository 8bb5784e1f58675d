// Package rpc is questions and answers between two ranks, over the packets of
// their communicator.
//
// A question names a method and has a body; what is in it is up to who asks.
// An answer has a body of up to MaxAnswer bytes, in as many packets as it
// takes, or an error: a code, which the two sides agree on, and a text. Every
// question has a deadline that travels with it, so that nobody works for an
// asker who has given up; an asker who gives up earlier says so.
//
// # Sessions
//
// A question and its answer belong to one session of the two ranks. When that
// ends, questions under way fail with control.ErrDisconnected, and whether
// they were carried out is not known. Who answers is told that the session
// has ended (OnEnd), so that what he kept for it can go.
//
// # Who waits
//
// Each question is answered in a goroutine of its own, up to MaxConcurrent for
// each peer; the next ones wait in a queue, and with that full are refused
// with CodeBusy. A peer that does not read its answers holds up itself alone.
package rpc
