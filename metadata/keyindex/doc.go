// Package keyindex records which node has which key, for the keys of keys/ and of publish/.
//
// # Ownership of a key
//
// A key belongs to the first node that claims it, until that node releases it or its lease
// ends. So two nodes that set the same key at the same time find out before either makes it
// visible. A claim that the service does not answer is not granted. The caller may instead
// find out from the other nodes that a key is free, and use it (Have): the claim is then
// made when the service is back. A key in use that another node has claimed before is
// contested, and is reported to the OnContested callback.
//
// No node keeps a copy of the index. A key is looked up when it is needed. Its location is
// remembered for a short time; its absence is not.
//
// # Entries in the service
//
//	keys/KEY, publish/KEY   "NODE EPOCH", bound to the node's lease
//
// # Life cycle of a claim
//
//	(none) ──Claim──> busy ──> ours ──Release──> leaving ──> (none)
//	                   │ │       │ ^                │
//	   another has it <┘ │       │ └────Claim───────┘
//	                     v       v another lease
//	                   (none), or of a key in use:
//	                   unasked ──worker──> ours, or contested
//
// A goroutine that changes a claim in the service marks it busy before it releases the
// lock, and all others wait for it. It is either a caller of Claim or the worker, the
// goroutine that does everything that can be deferred: releases, and claims that were
// granted without asking the service. When the node gets a new lease, all claims are made
// again.
//
// # Lock order
//
// Registry.mu may be held while members is asked for its lease; otherwise it and memory.mu
// are leaves: no call to the service is made with them held.
package keyindex
