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
//	     ──> the program of this rank runs: over links (stream), or in memory
//	         that all ranks have mapped (direct); device memory is staged
//	     ──> Report
//
// Every rank makes the same calls in the same order.
//
// # Memory
//
// Sources and results are views of registered memory. Memory that was given to
// Share before is used in place where all ranks are on one host; other memory is
// copied through a window that the group has, once. Device memory that the host
// can see is used where it is; other device memory is staged through pinned
// slots.
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
