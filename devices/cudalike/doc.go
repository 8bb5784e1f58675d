// Package cudalike has the families of accelerators whose runtimes have the shape
// of CUDA's: HIP (AMD, Hygon DCU), Cambricon, Moore Threads and Ascend. There
// is one implementation, over a table of functions; an adapter for each vendor
// fills the table and irons out what differs. The libraries are opened at run
// time; where one is missing its family has no device, and says why. What the
// device has in common with those of CUDA, its threads and its failure among it,
// is in package card.
//
// No adapter has been run on its vendor's hardware: each is tested against a
// stand-in library with the vendor's ABI. The comment at the head of each
// adapter says where its signatures and numbers come from.
//
// # Streams
//
// Every copy has a stream to itself, from a free list, for as long as it runs:
// copies overlap, and an error that a stream tells belongs to the copy that
// waits for it. A copy returns when its stream is done, also from pageable
// memory, where a runtime may return from the call earlier.
//
// # Abilities
//
// What a library lacks is missing in its table, and a device then has no such
// method: there is one type for each combination of abilities (combine.go).
//
// # Lock order
//
//	the locks of card.Card, in which is
//	  device.mu
//	Driver.table (a dl.Lazy, held while the library is opened)
package cudalike
