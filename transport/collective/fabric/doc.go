// Package fabric connects the ranks of a group for collectives. It provides a byte stream
// between each pair of ranks, memory that all ranks of a host have mapped, and counters by
// which they wait for each other.
//
//	Local   ranks that are goroutines of one process
//	Over    ranks of a domain: shared memory within a host, sockets between hosts
//
// A stream is raw: both ends know from their plan what comes next. It delivers bytes in
// order, or ends with an error; the group must then redo what was lost. Bytes sent with
// Link.TrySendZeroCopy are not copied: the peer may read them later than the sender expects.
//
// # Waiting
//
// Only Park and Signals.Await block. A waiter polls for a few microseconds, which on a
// processor of its own is faster than a wakeup, and then sleeps, so that ranks that share
// a processor do not use up each other's time.
package fabric
