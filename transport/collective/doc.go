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
// Every rank makes the same calls in the same order. Each group has links, counters
// and shared memory of its own (fabric.Duplicate), so groups over one fabric are
// independent, one after the other and side by side.
//
// How the bytes go, which Report.Path says:
//
//	direct  in memory that all ranks have mapped: it was given to Share. Each
//	        rank combines its slice of all sources, 64 KiB at a time, into the
//	        results of all; nothing else is copied
//	window  up to 16 KiB on one host: each rank puts its source into memory
//	        that the group has mapped, and makes its result of those of all. The
//	        ranks meet once
//	passed  on one host from or to device memory that the host does not see, for
//	        AllReduce, Reduce and Broadcast: as direct, through areas of the group
//	        that all have mapped, a segment at a time
//	stream  over links: sockets, or rings in shared memory for memory that is not
//	        shared. The steps of a program follow each other byte by byte, and
//	        what is combined is still in the cache
//	staged  over links from or to device memory that the host does not see: pages
//	        of it are loaded, used and stored, all three at the same time
//
// One goroutine, the caller's, moves everything but what devices copy. A call of host
// memory takes none from Go's heap once such a call has been made.
//
// # Memory
//
// Sources and results are views of registered memory. Device memory that the
// host can see is used where it is. Whether memory is shared, staged or in place
// is each rank's own matter: where that of one rank is not shared, all take links.
//
// Of what is staged only some pages are in host memory, in pinned slots of which
// Options has the size and the number; they are the group's own, as who keeps
// slots of an engine while it waits for another rank may keep them from that one.
// What is used again after it was put away comes from the device once more: an
// all-reduce by a ring between two ranks loads half of its elements twice. A plan's
// scratch is host memory as for every call: none for an all-reduce, a gather or a
// broadcast, but for one by doubling, and up to the whole for a reduction of which a
// rank gets a part or nothing.
//
// A buffer that was shared is held until Unshare, or until the group is closed:
// that comes before the buffer is closed.
//
// # When something goes wrong
//
// A call that fails leaves unspecified elements in its result.
//
// Ranks that ask for different things get an InconsistentError, all of them, and
// before an element moves if Options.Check has the call compared. Where it has
// not, headers of messages tell most of it while elements move; a rank that only
// sends may not hear of it.
//
// # Numbers of calls
//
// A rank numbers its calls: the number is the place of the call among all calls of
// the group. Every message begins with it, so ranks in different calls notice. It
// counts up by one with each call, whatever its outcome, also where its arguments are
// wrong or an event that it waits for has failed. Two things are not counted: a call that
// a closed or suspended group refuses, and a Barrier that is called again as the next
// call after it ended with ErrTimeout that is not ErrRetry too, or with its context:
// that continues the same Barrier, so late ranks complete it.
//
// # Recovery
//
// After a lost link, a timeout, or an error of its own in a call, a rank makes its links
// anew (fabric.Reform). All other ranks notice, and do the same. Then each sends its
// standing to all others: the number of its call, its progress (stage), whether it can
// repeat the call (verdict), the number of its tries, and the arguments (frame). All
// apply the same rule to the same facts. L is the highest number.
//
//	a rank in call  which has come     where those in call L        its call     its next call
//	L               anywhere           can all do it again          is repeated  L+1
//	L               anywhere           cannot all                   fails        L+1
//	before L        to settling        can or cannot                succeeds     the one after its own
//	before L        less far           can or cannot                fails        the one after its own
//
// Calls after its own that no rank does any more have lapsed: those before L, and L
// where it failed. At a rank that is behind they fail at their turn, without a
// message; the first call after them is the one in which the others wait for it, so
// that no rank ever takes another call for its own. A rank that fails while the ranks
// come together stays where it is: it does so again before its next call.
//
//	why call L fails                            error at the ranks in it
//	they ask for different things               InconsistentError
//	one has an error of its own                 that error there, ErrRetry elsewhere
//	one has waited for Options.Timeout, and
//	the call is no Barrier                      ErrTimeout there, ErrRetry elsewhere
//	one has overwritten its source and has
//	kept no copy (Options.KeepSource)           ErrRetry
//	one has tried more than Options.Retry times ErrRetry
//
// Calls that fail because a rank is behind, and those that have lapsed, are ErrRetry.
// Ranks that don't come in time are an ErrTimeout that names them, and a rank that is
// dead is fabric.ErrLink, within some seconds.
//
// A rank that has its result may have left when another one still needs its
// bytes again. Calls of Options.Settle bytes and more that go over links therefore
// end when all ranks have theirs; for smaller ones that would take longer than the
// call. Ranks that have lent what they send (plan.Lendable, from lendSize on) always
// wait for that, and for that all know it: until then they have no result, and do
// the call again or fail.
//
// # Parts
//
// Each part knows those that stand below it, and none above it:
//
//	Group       the calls of a caller, one at a time
//	calibration what links and memory cost: New has it measured
//	guard       keeps the ranks in the same call, repeats it after an error
//	recovery    makes the links anew and exchanges standings, to which rule is applied
//	keeper      copies of what calls overwrite
//	dispatcher  attempts a call: by windowPath, directPath, passPath or over links
//	executor    runs a program over links and mapped memory; has folder, which combines
//	            mapped memory, and stager with pager, which stage a device's
//	planner     finds and keeps plans and programs
//	shares      maps buffers; slots are those in which the ranks describe calls
//	messenger   control messages; hostSync waits for the ranks of one host
//	sequence    numbers of calls and their arguments, headers of messages
//	watchdog    ends all waits that last too long
//
// The executor is given work (task, program, buffers), and has the fabric's links, the
// sequence, hostSync and the watchdog. It reports back an error and what it has moved. It
// knows neither Group nor what the call is for, nor how errors are dealt with.
//
// # Lock order
//
// Group.mu is held for a whole call: calls of one group come one after the
// other. It guards all parts but watchdog, which has atomic fields only, since its own
// goroutine reads them and Close ends waits without Group.mu. Nothing else is taken
// inside but what fabric and region take.
package collective
