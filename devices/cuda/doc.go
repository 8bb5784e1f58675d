// Package cuda implements the device family of NVIDIA's cards with the driver API
// (libcuda.so.1), which is opened at run time; if it is missing, the family has no devices
// and reports why.
//
// # Contexts and threads
//
// A device uses the card's primary context, which PyTorch and CUDA's runtime use too; it is
// released at the end and never reset, since other code in the process may be using it. The
// current context is a property of an operating-system thread, but goroutines move between
// threads: Card.On locks the thread and sets the context before each piece of work, and no
// call that needs a context is made outside of it.
//
// # Copies
//
// A copy borrows a lane: two streams that are not synchronized with other streams, and two
// chunks of pinned memory. Between two checks of the context one piece is in flight in each
// stream:
//
//	pinned host memory      direct, in pieces of 16 MiB
//	other host memory       through the lane's chunks of 2 MiB: the host copies
//	                        one while the card moves the other
//	inside the card, peers  in pieces of 128 MiB
//
// Host memory counts as pinned if PinHost of this particular device has registered it. A
// copy of partly registered memory, which the driver refuses, goes through the chunks.
// CUDA's default stream is never used, so that work of other code does not delay copies.
//
// # Memory
//
// Small allocations use cuMemAlloc. Large ones are physical memory mapped into addresses of
// its own (VMM), if the card supports that, and can be exported as a descriptor. Memory to
// be exported by IPC is allocated by cuMemAlloc as well, in units of 2 MiB, because the
// driver shares the whole block that contains a smaller allocation.
//
// Memory that outlives the process (devices.Lasting) is physical memory that only its
// descriptor has: MakeLasting makes it, AllocIn imports and maps it, here and in the process
// that follows. The driver frees it with the last descriptor, handle and mapping of all
// processes, whatever has become of the one that made it. This has not been run on a card.
//
// # Kernels
//
// Elements are combined by kernels in PTX (ptx.go), which the driver compiles for its card
// when a type is first used. If a driver rejects them, the host does the work, and the log
// reports why, once. So far the kernels have been run by an interpreter of PTX in the
// tests, but not on a card.
//
// # Streams
//
// A stream of this package is a CUDA stream, to which package streams submits the work, and
// its events are CUDA events. A stream waits on the card for an event of another stream, on
// any card.
//
// # Failure of a card
//
// Some errors make the context permanently unusable (Code.Sticky). The handling is in
// package card, like everything else that this family has in common with others: memory
// accounting, sharing, pinning and peer access.
//
// # Lock order
//
//	the locks of card.Card, in which are
//	  mapping.mu (held while VMM memory is opened to a peer)
//	  kernels.mu (held while a module is compiled)
//	  streams.Stream.mu
//	Driver.api (a dl.Lazy, held while the library is opened)
//
// A lane is not a lock, but has a place in the order: it is borrowed after Card.life, and
// no other lane is waited for while it is held.
package cuda
