// Package arena sub-allocates the memory of one device.
//
// A device's own allocator is slow and coarse, so the arena takes large
// allocations, slabs, and leases page ranges of them. A million small objects
// cost no Go heap of their own: a slab knows what is leased by one bit for
// each page, and a tree of free-run summaries above the bits finds room.
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
// A slab that was taken for one large lease, and is larger than the usual one,
// is set aside when that lease has gone: it is a spare. Small leases do not go
// there, so that it can go back to the device. It serves a lease of at least
// half its size, and any lease once the device has no more to give. So a lease
// on a device that is not full keeps at most twice its size, or one slab of
// the usual size, from other programs, where it is the only one in its slab.
// That is no bound for what is left in a slab of which other leases have gone:
// leases are not moved.
//
// Leased bytes are what is counted against the device's total, so the free
// space that a user sees is exact to the page. Slabs that become wholly free
// are kept up to a bound, and go back to the device beyond it.
//
// The bytes of a lease are what the last owner of those pages left: the
// caller must not show them to anyone before it has written them.
//
// # Lost memory
//
// When the device enters another epoch, every slab of the old one is dropped
// at the next call, and its leases with it: freeing or resolving one of them
// answers ErrLost.
//
// # Lock order
//
// turn, then mu. turn is a token that is held for every call that takes
// memory from the device or gives it back; it can be waited for with a
// context. mu guards the maps and is never held during such a call.
package arena
