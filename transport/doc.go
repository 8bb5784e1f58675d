// Package transport is the communication core: it moves bytes between spans of
// memory in this process and, through a [Remote], in other processes and on other
// machines. The [Engine] picks the path, reports it, and counts the bytes.
//
// # The life of a transfer
//
//	Engine.Copy(dst, src)
//	    │  route: the kinds of the two ends determine the path
//	    ▼
//	spans checked ──> bytes moved, piece by piece, until the first error or
//	    │             the end of the context
//	    ▼
//	counted for (path, device) ──> Listener.Copied ──> path, error
//
// A failed copy leaves unspecified bytes in dst and nowhere else. When Copy
// returns, none of its goroutines runs, and it holds no slot or view.
//
// Many small copies between memory that other processes have registered are made in a [Burst], which moves
// them as Copy does and counts them together.
//
// # How the path is chosen
//
//	from       to            method                                 Path
//	host       device        memcpy into its map, else CopyIn       h2d
//	device     host          memcpy from its map, else CopyOut      d2h
//	device     same device   the device's own copy (memmove)        d2d
//	device     other device  CopyPeer, if the destination can       d2d-peer
//	                         both map: memcpy between the maps      mapped
//	                         one maps: CopyOut or CopyIn on it      mapped
//	                         none maps: the staged pipeline         staged
//	file       device        pread into its map, else from the      h2d
//	                         file's own pages, else by slots
//	device     file          pwrite from its map, else into the     d2h
//	                         file's own pages, else by slots
//	host       file          pwrite                                 h2d
//	file       host          pread                                  d2h
//	file       file          copy_file_range, else by slots         d2d
//	                         the two of different devices           staged
//	host       host          memmove                                mapped
//	any        remote        the remote end receives them (Store)   tcp, shm,
//	remote     any           the remote end supplies them (Fetch)   rdma, ucx:…
//
// "mapped" with one map is a copy that touches host memory once: the map is the
// other device's memory. "h2d" and "d2h" name the direction between the host tier
// and a device; files belong to the host tier. A device returns ErrUnsupported
// for an operation that it lacks, and only that error leads to the next row.
//
// For the last two rows the [Remote] reports the path after it has moved the
// bytes. Bytes staged for it are counted separately, as h2d or d2h. A copy that
// fails before its path is known counts as tcp.
//
// Go code reads and writes files, but touches a mapped one only if it can't shrink ([Mapping]): a store to a
// mapped page of a full tmpfs raises SIGBUS.
//
// # Files' own pages
//
// A copy through slots has the processor move every byte between the file and a
// slot, while a card whose DMA is several times as fast waits. So for a copy of
// Options.RegisterFrom bytes or more between a [Span.Registrable] file and a
// devices.Pinner, the device works on the file's pages directly: they are mapped,
// and registered by PinHost.
//
//	file   ├──── region ────┼──── region ────┼── hole ──┼─ region ─┤
//	        at most 8 MiB, each with its own mapping, for one device
//
// Registering costs more than copying, so a region is kept after its copy ends
// and after the file is closed. It is removed
//
//   - before pages are taken from the file: Engine.Withdraw, which waits for the
//     copies that use them. Readers of an object hold no lock against its
//     truncation, so Withdraw is what keeps the source of a copy intact;
//   - before the file is removed: Engine.Forget;
//   - permanently, when the file is shared with another process: Engine.Share;
//   - when the device has a new epoch, by the next copy that finds it;
//   - to stay within Options.MaxRegistered, least recently used first; but never
//     for another region of the same file, since a file longer than the limit
//     would then be registered again from end to end by each copy;
//   - when the engine is closed.
//
// INVARIANT (no SIGBUS): every access to a region's mapping finds a page. Before
// a file is mapped in, a source must have no holes (mincore), and a destination
// gets its pages (fallocate, which also sets the file's length). The kernel maps
// the pages in (MADV_POPULATE_READ), which fails where an access would raise
// SIGBUS, and which, unlike a write fault, leaves the file's times alone.
// Withdraw is called before the pages are removed.
//
// INVARIANT (no stale bytes): a device copies from or to the pages that the file
// has when the copy begins. Before a kept region is used, it is checked that all
// its pages are still mapped: the kernel unmaps a page that is taken from a file,
// whatever the cause, and since nothing touches the mapping, no page comes back.
// This detects changes that bypass the daemon: a program that has mapped the file
// through FUSE passthrough can punch holes in the tmpfs by madvise(MADV_REMOVE),
// and so can any program with access to the tier's directory. Pages that are
// taken during a copy remain the device's until it ends; the result is as if they
// had been taken after it. They never belong to another object meanwhile.
//
// One of two things is assumed of a device. Either it moves pieces of 256 KiB and
// more without the processor touching the mapping (CUDA uses the processor for up
// to 64 KiB); or the processor does touch it, which is correct except for a page
// that is removed behind the daemon's back, in the middle of a copy, from a full
// tier.
//
// Pages that can't be registered go through slots, counted in
// Stats.Registered.Failures; registration of that file is not tried again for
// that device. A limit on locked memory (RLIMIT_MEMLOCK) shows here if the driver
// counts registered memory against it.
//
// Measured on 2 cores of a shared EPYC machine, Linux 6.18, tmpfs with small
// pages, and a simulated card of unlimited speed, so that its "DMA" is one memcpy
// (BenchmarkFileDirect, BenchmarkRegister, BenchmarkDirectOverhead):
//
//	relative to slots                         device <- file   file <- device
//	pages already registered                  1.4 … 4.2        3.0 … 5.0
//	registered by this copy                   0.8 … 1.5
//	pages allocated by this copy                               0.6 … 1.2
//
//	overhead of the copy, without the device: 19 us for 8 MiB
//
// What a vendor's driver adds to the cost of registering has not been measured.
//
// Slots are mapped by this package and registered for each device that uses them,
// for as long as they live: PinHost with CU_MEMHOSTREGISTER_PORTABLE makes them
// equivalent to memory from cuMemHostAlloc, and they serve every family.
//
// # The staged pipeline
//
// Each of the pinned slots in flight (Options.Slots, fewer for a short copy or an
// exhausted pool) has a worker that reads a chunk from the source and writes the
// same chunk to the destination. At most half of the workers, rounded up, are in
// one stage, so that reads and writes overlap.
//
// The alternative, one goroutine for each stage with slots passed between them,
// was measured and is slower where a stage is a memcpy: every chunk moves from
// the cache of one core to that of the other. Two devices of 20 GB/s on 2 cores,
// chunks of 128 to 512 KiB: 2 to 10 GB/s by stage, 13 to 17 GB/s by worker. By
// worker, as the median ratio to the slower stage alone:
//
//	chunk      3 slots       4 slots       6 slots
//	256 KiB    0.80 … 0.89   0.94 … 1.13   0.65 … 1.01
//	512 KiB    0.72 … 0.93   0.70 … 0.95   0.50 … 0.95
//	1 MiB      0.63 … 0.97   0.65 … 0.95   0.64 … 0.95
//	2 MiB      0.62 … 0.95   0.63 … 0.95   0.62 … 0.98
//
// (the ranges are those of several processes, on a busy machine). On an idle
// machine four slots of 256 KiB reach 0.91 to 0.94 and six 0.95 to 0.99; six are
// the default, and fit the second-level caches of two cores. BenchmarkStaged
// repeats the measurement.
//
// # Lock order
//
// SlotPool.mu, regions.mu and counters.adding are leaves, and none is held while
// bytes move, memory is mapped, or a device is called. Counting a copy takes no
// lock once its row exists. The holder of a slot must not wait for another one:
// the pipeline waits for its first slot and then takes only those that are free.
//
// A lease of a region is not a lock, but Withdraw waits for it: its holder may
// call the device and nothing else. It takes no slot, and waits for no other
// region except one that is being registered.
package transport
