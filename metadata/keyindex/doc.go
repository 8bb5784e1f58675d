// Package keyindex is which node has which key: of keys/ and of publish/.
//
// # Who may have a key
//
// A key belongs to the first node that claims it, until it releases it, or is
// gone with its lease. So two nodes that set one key at once find out before
// either shows it. A claim that the service does not answer is not granted. The
// caller may find out from the nodes themselves that a key is free, and use it
// (Have): the claim is made good when the service is back. A key in use that
// another node has claimed before is contested: OnContested tells of it.
//
// Nobody keeps a copy of the index. A key is asked for when it is needed, and
// where it is is remembered for a short time; that it is nowhere is not.
//
// # In the service
//
//	keys/KEY, publish/KEY   "NODE EPOCH", bound to the node's lease
//
// # The life of a claim
//
//	(none) ──Claim──> busy ──> ours ──Release──> leaving ──> (none)
//	                   │ │       │ ^                │
//	   another has it <┘ │       │ └────Claim───────┘
//	                     v       v another lease
//	                   (none), or of a key in use:
//	                   unasked ──worker──> ours, or contested
//
// Who changes a claim at the service marks it busy before it lets the lock go,
// and all others wait for it. That is either a caller of Claim or the worker, a
// goroutine that does what can be done later: releases, and claims that were
// granted without having been asked for. With another lease all claims are made
// again.
//
// # Lock order
//
// Registry.mu may be held while members is asked for its lease; otherwise it and
// memory.mu are leaves: nothing is asked of the service with them held.
package keyindex
