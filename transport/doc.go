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
//	file       device        pread into its map, else by slots      h2d
//	device     file          pwrite from its map, else by slots     d2h
//	host       file          pwrite                                 h2d
//	file       host          pread                                  d2h
//	file       file          copy_file_range, else by slots         d2d
//	                         the two of different devices           staged
//	host       host          memmove                                mapped
//
// "mapped" with one map is a copy that touches host memory once: the map is
// the other device's memory. "h2d" and "d2h" name the direction between the
// host tier and a device; files belong to the host tier. What a device can't
// do answers ErrUnsupported, and only that leads to the next row.
//
// Files are read and written, never mapped: a store to a mapped page of a
// full tmpfs is a SIGBUS.
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
// SlotPool.mu and counters.adding are leaves, and neither is held while bytes
// move, memory is mapped, or a device is called. Counting a copy takes no
// lock once its row exists. Who holds a slot must not wait for another one:
// the pipeline waits for its first and takes what more there is.
package transport
