// Package cudalike implements the families of accelerators whose runtimes resemble CUDA's:
// HIP (AMD, Hygon DCU), Cambricon, Moore Threads and Ascend. There is one implementation,
// on top of a table of functions; an adapter for each vendor fills the table and hides the
// differences. The libraries are opened at run time; if one is missing, its family has no
// devices and reports why. The code that the devices share with those of CUDA, including
// the handling of threads and of failures, is in package card.
//
// No adapter has been run on its vendor's hardware: each is tested against a stand-in
// library with the vendor's ABI. The comment on each adapter names the source of its
// signatures and constants.
//
// # Streams
//
// Every copy uses a stream of its own, from a free list, for as long as it runs: copies
// overlap, and an error reported by a stream belongs to the copy that waits for it. A copy
// returns when its stream has completed, even from pageable memory, where a runtime's call
// may return earlier.
//
// # Abilities
//
// Functions that a library lacks are nil in its table, and a device then does not have the
// corresponding methods: there is one type for each combination of abilities (combine.go).
//
// # Lock order
//
//	the locks of card.Card, in which is
//	  device.mu
//	Driver.table (a dl.Lazy, held while the library is opened)
package cudalike
