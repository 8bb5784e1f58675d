// Package cuda is the device family of NVIDIA's cards, by the driver API
// (libcuda.so.1), which is opened at run time; where it is missing the family
// has no device, and says why.
//
// # Contexts and threads
//
// A device uses its primary context, which is the one that PyTorch and CUDA's
// runtime use too; it is released at the end and never reset, since others may
// be using it. The current context belongs to an operating-system thread, and
// goroutines wander: Card.On locks the thread and sets the context before
// each piece of work, and no call that needs a context is made outside of it.
//
// # Moves
//
// A copy borrows a lane: two streams that wait for no others, and two chunks
// of pinned memory. Between two looks at the context a piece is on its way in
// each stream:
//
//	pinned host memory      direct, in pieces of 16 MiB
//	other host memory       through the lane's chunks of 2 MiB: the host copies
//	                        one while the card moves the other
//	inside the card, peers  in pieces of 128 MiB
//
// Host memory is pinned where PinHost of this very device has registered it: a
// copy of memory of which only a part is registered, which the driver refuses,
// goes through the chunks. Nothing of CUDA's
// default stream is used, so the work of others does not delay ours.
//
// # Memory
//
// Small allocations are cuMemAlloc's. Large ones are physical memory mapped
// into addresses of its own (VMM) where the card has that, and can be exported
// as a descriptor. What is to be exported by IPC is cuMemAlloc's again, in
// units of 2 MiB, because the driver shares the whole block that a smaller
// allocation lies in.
//
// # Kernels
//
// Elements are combined by kernels in PTX (ptx.go), which the driver compiles
// for its card when a type is first asked for. A driver that refuses them has
// the host do the work, and the log says why, once. They have been run by an
// interpreter of PTX in the tests, and by no card yet.
//
// # Streams
//
// A stream of ours is one of CUDA's, into which a goroutine puts the work, and
// its events are CUDA's. One stream waits for another's event on the card, of
// any card. What no card sees by itself (a devices.Signal, an event of another
// family) the goroutine waits for, before it puts in what comes behind it: the
// host signals, and nothing is in the stream that could never be done.
//
// # A card that fails
//
// Some errors kill the context for good (Code.Sticky). What follows from that is
// in package card, as is what else this family has in common with others:
// the account of memory, sharing, pinning and the access of peers.
//
// # Lock order
//
//	the locks of card.Card, in which are
//	  mapping.mu (held while VMM memory is opened to a peer)
//	  kernels.mu (held while a module is compiled)
//	  stream.mu
//	Driver.api (a dl.Lazy, held while the library is opened)
//
// A lane is not a lock, yet orders like one: it is borrowed after Card.life,
// and nothing else is waited for while it is held.
package cuda
