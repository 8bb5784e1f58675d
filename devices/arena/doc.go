// Package arena sub-allocates the memory of one device.
//
// A device's own allocator is slow and coarse, so the arena makes large allocations, called
// slabs, and leases page ranges of them. A million small objects need no Go heap of their
// own: a slab records leased pages with one bit per page, and a tree of free-run summaries
// above the bits finds free space.
//
//	Arena ── slab table (id → slab)
//	  │
//	  ├── spares: slabs of more than the usual size, wholly free, best fit
//	  │
//	  └── slot tree: longest free run of every other slab, first fit
//	         │
//	         └── slab: device Memory + page map
//	                     ├── bits: 1 = leased
//	                     └── run tree: free pages at the head, at the tail,
//	                         and in the longest run, for each 256 pages
//
// A slab that was allocated for one large lease, and is larger than the usual size, becomes
// a spare when that lease is freed. Small leases are not placed there, so that it can be
// returned to the device. A spare is used for a lease of at least half its size, and for
// any lease once the device has no more memory. So a lease on a device that is not full
// withholds at most twice its size, or one slab of the usual size, from other programs, as
// long as it is the only one in its slab. A slab whose other leases have been freed has no
// such bound, because leases are not moved.
//
// Leased bytes are counted against the device's total, so the free space that a user sees
// is exact to the page. Slabs that become wholly free are retained up to a bound, and
// returned to the device beyond it.
//
// The bytes of a lease contain what the previous owner of those pages left: the caller must
// not disclose them before it has overwritten them.
//
// # Lost memory
//
// When the device enters another epoch, every slab of the old one is dropped at the next
// call, together with its leases: freeing or resolving one of them returns ErrLost.
//
// # Memory that outlives the process
//
// With Options.Keeper each slab is a file, which the keeper has before the slab is used:
//
//	file ── memory of the slab, which the device maps
//	     └─ labels: for each page, an owner and its place in the owner's content
//
// A device that is a devices.LastingMaker has a descriptor for the memory. Its labels are a
// file of their own, which is kept before the memory and dropped after it: labels alone are
// no slab. All slabs are whole units of such memory.
//
// The holder of a lease labels its pages (Label), and takes the labels away (Unlabel) as
// soon as they are no longer part of its content, which may be before readers have left.
// Labels are stores to a shared mapping: no system call, and they are there after a kill.
// Restore in the next process leases the pages that have labels again. A page has one
// label, so it never has two owners. The arena does not know what an owner is.
//
// The words of a label are stored one by one, the owner last. So a kill leaves some pages
// of a lease labelled and others not, but no label half written.
//
// # Lock order
//
// turn, then mu, then that of a slab's labels. turn is a token that is held during every call that allocates memory from
// the device or frees it; waiting for it can be cancelled by a context. mu guards the maps
// and is never held during such a call.
package arena
