// Package fabric joins the ranks of a group for collectives: a stream of bytes
// between each two, memory that all of them have mapped where they are on one
// host, and counters by which they wait for each other.
//
//	Local   ranks that are goroutines of one process
//	Over    ranks of a domain: shared memory on one host, sockets between hosts
//
// A stream is raw: both sides know from their plan what comes next. It carries
// bytes in order, or ends with an error; what was lost with it is the group's to
// do again. What is lent to it (Link.TryLend) is sent from where it is: a peer may
// read it later than the sender thinks.
//
// # Waiting
//
// Nothing here blocks but Park and Signals.Await. Who waits looks for a few
// microseconds, since on a processor of its own that is faster than to be woken,
// and sleeps then: ranks that share a processor do not burn each other's time.
package fabric
