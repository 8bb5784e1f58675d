// Package transport is the communication core: it moves bytes between spans
// of memory, here and, later, on a peer. The [Engine] picks the way, says
// which it took, and counts.
//
// # The life of a transfer
//
//	Engine.Copy(dst, src)
//	    │  route: the kinds of the two ends give the mover
//	    ▼
//	spans checked ──> bytes moved, piece by piece, until the first error or
//	    │             the end of the context
//	    ▼
//	counted for (path, device) ──> Listener.Copied ──> path, error
//
// A failed copy leaves unspecified bytes in dst and nowhere else. When Copy
// returns, no goroutine of it runs, and no slot or view of it is held.
//
// # Which way is taken when
//
//	from       to            way                                    Path
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
//	any        remote        the remote end takes them (Store)      tcp, shm,
//	remote     any           the remote end brings them (Fetch)     rdma, ucx:…
//
// "mapped" with one map is a copy that touches host memory once: the map is
// the other device's memory. "h2d" and "d2h" name the direction between the
// host tier and a device; files belong to the host tier. What a device can't
// do answers ErrUnsupported, and only that leads to the next row.
//
// Which of the last is told by the [Remote], when it has moved them. What is
// staged for it is counted beside that, as h2d or d2h, and a copy that fails
// before a way is known counts for tcp.
//
// Go's code reads and writes files, and never touches a mapped one: a store to
// a mapped page of a full tmpfs is a SIGBUS.
//
// # Files' own pages
//
// Through slots, the processor moves every byte between the file and a slot,
// and a card whose DMA is several times as fast waits for it. So a copy of
// Options.RegisterFrom bytes or more, between a [Span.Registrable] file and a
// devices.Pinner, is done by the device on the file's pages themselves: they
// are mapped, and registered by PinHost.
//
//	file   ├──── region ────┼──── region ────┼── hole ──┼─ region ─┤
//	        8 MiB at most, each with a mapping of its own, for one device
//
// Registering costs more than copying, so a region is kept when its copy has
// ended and when the file is closed. It goes
//
//   - when pages are about to be taken from the file: Engine.Withdraw, which
//     waits for the copies that use them. Readers of an object hold no lock
//     against its being cut, so this is what keeps a source together;
//   - when the file is about to be removed: Engine.Forget;
//   - for good, when the file is given to another process: Engine.Share;
//   - when the device has a new epoch, by the next copy that meets it, or is
//     about to be closed: Engine.ForgetDevice;
//   - for room, Options.MaxRegistered, longest unused first; never for another
//     region of its own file, or a file longer than the limit would be
//     registered anew from end to end by each copy;
//   - with the engine.
//
// INVARIANT (no SIGBUS): whoever touches a region's mapping finds a page.
// Before a file is mapped in, what is read must have no holes (mincore), and
// what is written gets its pages (fallocate, which is also how the file gets
// its length). The kernel maps the pages in (MADV_POPULATE_READ), which fails
// where a touch would be a SIGBUS, and leaves the file's times alone, as a
// fault for writing would not. Withdraw comes before the pages go.
//
// INVARIANT (no stale bytes): what a device copies from or to are the pages
// that the file has when the copy begins. A kept region is asked first whether
// all its pages are mapped still: the kernel unmaps a page that it takes from
// a file, whoever caused it, and nobody touches the mapping, so none comes
// back. This finds what goes past the daemon: a program that has mapped the
// file through FUSE passthrough punches holes by madvise(MADV_REMOVE) into the
// tmpfs itself, and so does whoever gets at the tier's directory. Pages that
// are taken during a copy stay the device's until it ends; the bytes are as if
// they had been taken after it. Never are they another object's.
//
// Two things are assumed of a device: it moves pieces of 256 KiB and more
// without touching the mapping by the processor (CUDA copies up to 64 KiB
// so), or through it, which is right too but for a page that goes past the
// daemon, in the middle of a copy, from a tier that is full.
//
// What can't be registered goes through slots, and is counted in
// Stats.Registered.Failures; that file is not tried again for that device. A
// limit on locked memory (RLIMIT_MEMLOCK) shows there, where a driver counts
// registered memory against it.
//
// Measured on 2 cores of an EPYC that others used, Linux 6.18, tmpfs with
// small pages, a simulated card of endless speed, so that its "DMA" is one
// memcpy (BenchmarkFileDirect, BenchmarkRegister, BenchmarkDirectOverhead):
//
//	against slots                             device <- file   file <- device
//	the pages are registered already          1.4 … 4.2        3.0 … 5.0
//	registered by this copy                   0.8 … 1.5
//	the file gets its pages by this copy                       0.6 … 1.2
//
//	the copy's own work, without the device's: 19 us for 8 MiB
//
// What a vendor's driver adds to registering has not been measured.
//
// Slots are mapped by us and registered for each device that uses them, for
// as long as they live: PinHost with CU_MEMHOSTREGISTER_PORTABLE makes of
// them what cuMemHostAlloc gives, and they serve every family.
//
// # The staged pipeline
//
// Each of the pinned slots in flight (Options.Slots, fewer for a short copy
// or an exhausted pool) has a worker that reads a chunk from the source and
// writes the same chunk to the destination. At most half of the workers,
// rounded up, are in one stage, so reads and writes go on side by side.
//
// The other shape, one goroutine for each stage with slots handed from one to
// the other, was measured and is slower where a stage is a memcpy: every
// chunk crosses from the cache of one core to that of the other. Two devices
// of 20 GB/s on 2 cores, chunks of 128 to 512 KiB: 2 to 10 GB/s by stage, 13 to
// 17 GB/s by worker. By worker, as the median ratio to the slower stage alone:
//
//	chunk      3 slots       4 slots       6 slots
//	256 KiB    0.80 … 0.89   0.94 … 1.13   0.65 … 1.01
//	512 KiB    0.72 … 0.93   0.70 … 0.95   0.50 … 0.95
//	1 MiB      0.63 … 0.97   0.65 … 0.95   0.64 … 0.95
//	2 MiB      0.62 … 0.95   0.63 … 0.95   0.62 … 0.98
//
// (the range is that of several processes, beside other jobs). On an idle
// machine four slots of 256 KiB reach 0.91 to 0.94 and six 0.95 to 0.99; six
// are the default, and fit the second-level caches of two cores.
// BenchmarkStaged measures it again.
//
// # Lock order
//
// SlotPool.mu, regions.mu and counters.adding are leaves, and none is held
// while bytes move, memory is mapped, or a device is called. Counting a copy
// takes no lock once its row exists. Who holds a slot must not wait for
// another one: the pipeline waits for its first and takes what more there is.
//
// A lease of a region is no lock, but Withdraw waits for it: who has one calls
// the device with it and nothing else. It takes no slot, and waits for no
// other region but one that is being registered.
package transport
