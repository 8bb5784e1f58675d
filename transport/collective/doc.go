// Package collective implements the collective operations of a group of ranks: AllReduce,
// ReduceScatter, AllGather, Broadcast, Reduce, AllToAll and Barrier.
//
//	f, err := fabric.Over(ctx, comm, fabric.Options{})
//	g, err := collective.New(ctx, f, collective.Options{})
//	err = g.AllReduce(ctx, view, view, elem.Sum)   // in place
//
// # From a call to the bytes
//
//	Call ──> plan.Task ──> the plan, cached since the first such call
//	                         (chosen by plan.Estimates from the costs that New measured)
//	     ──> the arguments are compared with those of the other ranks (Options.Check)
//	     ──> the program of this rank runs
//	     ──> Report
//
// Every rank makes the same calls in the same order. Each group has links, counters and
// shared memory of its own (fabric.Duplicate), so groups over one fabric are independent,
// whether used in turn or concurrently.
//
// Report.Path names the path of the bytes:
//
//	direct  in buffers that all ranks have mapped, by Share. Each rank combines its
//	        slice of all sources, 64 KiB at a time, into the results of all ranks; there
//	        are no other copies
//	window  up to 16 KiB on one host: each rank writes its source into memory that the
//	        group has mapped, and computes its result from those of all ranks. There is
//	        a single rendezvous
//	passed  on one host, from or to device memory that the host can't access, for
//	        AllReduce, Reduce and Broadcast: like direct, but through areas of the group
//	        that all ranks have mapped, one segment at a time
//	stream  over links: sockets, or rings in shared memory for buffers that are not
//	        shared. The steps of a program follow each other byte by byte, so that the
//	        bytes to combine are still in the cache
//	staged  over links, from or to device memory that the host can't access: pages of it
//	        are loaded, used and stored, all three concurrently
//
// The caller's goroutine moves everything except the copies made by devices. After the
// first call of its kind, a call on host memory does not allocate from Go's heap.
//
// # Memory
//
// Sources and results are views of registered memory. Device memory that the host can
// access is used in place. Each rank decides on its own whether its memory is shared,
// staged or in place; if the memory of one rank is not shared, all ranks use links.
//
// Of a staged buffer only some pages are in host memory, in pinned slots whose size and
// number are set by Options. The slots belong to the group: if it held slots of an engine
// while it waits for another rank, it might deprive that rank of them. A page that is used
// again after its eviction is loaded from the device again: a ring all-reduce between two
// ranks loads half of its elements twice. The scratch memory of a plan is always host
// memory. An AllReduce, an AllGather or a Broadcast needs none, except for an AllReduce by
// doubling; a reduction of which a rank gets only a part or nothing needs up to the size
// of the whole.
//
// A shared buffer is held until Unshare, or until the group is closed: either must happen
// before the buffer is closed.
//
// # Errors
//
// A call that fails leaves its result unspecified.
//
// If ranks make different calls, all of them get an InconsistentError, and before any
// element moves if Options.Check has the call compared. Otherwise the headers of messages
// reveal most differences while elements move; a rank that only sends may not notice.
//
// # Numbers of calls
//
// A rank numbers its calls: the number is the position of the call among all calls of the
// group. Every message begins with it, so that ranks in different calls notice. It
// increases by one with each call, whatever its outcome, even if its arguments are invalid
// or an event that it waits for has failed. Two kinds of calls are not counted: a call
// that a closed or suspended group rejects, and a Barrier that is called again as the next
// call after it ended with its context, or with an ErrTimeout that is not also ErrRetry:
// that continues the same Barrier, so that late ranks complete it.
//
// # Recovery
//
// After a lost link, a timeout, or a local error in a call, a rank makes its links anew
// (fabric.Reform). All other ranks notice, and do the same. Then each rank sends its
// standing to all others: the number of its call, its progress (stage), whether it can
// repeat the call (verdict), the number of its tries, and the arguments (frame). All ranks
// apply the same rule to the same standings. L is the highest number.
//
//	a rank in call  with progress      the ranks in call L can      its call     its next call
//	L               any                all repeat it                is repeated  L+1
//	L               any                not all repeat it            fails        L+1
//	before L        settling           either                       succeeds     the one after its own
//	before L        less               either                       fails        the one after its own
//
// Later calls of a rank that no rank executes any more have lapsed: those before L, and L
// if it failed. At a rank that is behind they fail in their turn, without a message; the
// first call after them is the one in which the other ranks wait for it, so that no rank
// ever mistakes another call for its own. A rank whose recovery fails keeps its state, and
// recovers again before its next call.
//
//	why call L fails                            error at the ranks in it
//	they make different calls                   InconsistentError
//	one has a local error                       that error there, ErrRetry elsewhere
//	one has waited for Options.Timeout, and
//	the call is not a Barrier                   ErrTimeout there, ErrRetry elsewhere
//	one has overwritten its source and has
//	kept no copy (Options.KeepSource)           ErrRetry
//	one has tried more than Options.Retry times ErrRetry
//
// Calls that fail because a rank is behind, and calls that have lapsed, return ErrRetry.
// Ranks that do not come in time cause an ErrTimeout that names them; a rank that is dead
// causes fabric.ErrLink, within a few seconds.
//
// A rank that has its result may have moved on when another rank needs its bytes again.
// Therefore calls over links of at least Options.Settle bytes end with a barrier (settle),
// once all ranks have their results; for smaller calls this would take longer than the
// call itself. If ranks have sent without copying (plan.ZeroCopy, from zeroCopySize on), all
// ranks always settle, twice, before they have a result: once so that all have received
// their bytes, and once so that all know this. Until then they repeat the call or fail.
//
// # Parts
//
// Each part knows those below it, and none above it:
//
//	Group       the calls of a caller, one at a time
//	calibration measures the costs of links and memory, for New
//	guard       keeps the ranks in the same call, repeats it after an error
//	recovery    makes the links anew and exchanges standings, to which rule is applied
//	keeper      copies of sources that calls overwrite
//	dispatcher  attempts a call: by windowPath, directPath, passPath or over links
//	executor    runs a program over links and mapped memory; uses folder, which combines
//	            mapped memory, and stager with pager, which stage device memory
//	planner     chooses and caches plans and programs
//	shares      maps buffers; in slots the ranks describe calls to each other
//	messenger   control messages; hostSync waits for the ranks of one host
//	sequence    numbers of calls and their arguments, headers of messages
//	watchdog    ends all waits that last too long
//
// The executor receives work (task, program, buffers), and uses the links of the fabric,
// the sequence, hostSync and the watchdog. It returns an error and counts the bytes it has
// moved. It does not know Group, the purpose of the call, or how errors are handled.
//
// # Lock order
//
// Group.mu is held for a whole call: calls of one group run one after the other. It guards
// all parts except watchdog, which has only atomic fields, since its own goroutine reads
// them and Close ends waits without Group.mu. While it is held, only the locks of fabric
// and region are taken.
package collective
