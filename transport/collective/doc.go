// Package collective is what the ranks of a group do together: reduce, gather,
// scatter, broadcast, exchange, wait.
//
//	f, err := fabric.Over(ctx, comm, fabric.Options{})
//	g, err := collective.New(ctx, f, collective.Options{})
//	err = g.AllReduce(ctx, view, view, elem.Sum)   // in place
//
// # From a call to the bytes
//
//	Call ──> plan.Task ──> the plan, kept since the first such call
//	                         (chosen by plan.Estimates from what New measured)
//	     ──> the arguments are compared with the other ranks' (Options.Check)
//	     ──> the program of this rank runs
//	     ──> Report
//
// Every rank makes the same calls in the same order.
//
// How the bytes go, which Report.Path says:
//
//	direct  in memory that all ranks have mapped: it was given to Share. Each
//	        rank combines its slice of all sources, 64 KiB at a time, into the
//	        results of all; nothing else is copied
//	window  up to 16 KiB on one host: each rank puts its source into memory
//	        that the group has mapped, and makes its result of those of all. The
//	        ranks meet once
//	stream  over links: sockets, or rings in shared memory for memory that is not
//	        shared. The steps of a program follow each other byte by byte, and
//	        what is combined is still in the cache
//	staged  over links from or to device memory that the host does not see: it is
//	        loaded, used and stored piece by piece, all three at the same time
//
// One goroutine, the caller's, moves everything but staged pieces. A call of host
// memory takes none from Go's heap once such a call has been made.
//
// # Memory
//
// Sources and results are views of registered memory. Device memory that the
// host can see is used where it is. Whether memory is shared, staged or in place
// is each rank's own matter: where that of one rank is not shared, all take links.
// A buffer that was shared is held until the group is closed: close the group
// first.
//
// # When something goes wrong
//
// A call that fails leaves unspecified elements in its result. A link that was
// lost is made anew and the call is done again where Options.Retry allows; a
// rank that is gone is named.
//
// # Lock order
//
// Group.mu is held for a whole call: calls of one group come one after the
// other. Nothing else is taken inside but what fabric and region take.
package collective
