// Package cudalike has the families of accelerators whose runtimes have the shape
// of CUDA's: HIP (AMD, Hygon DCU), Cambricon, Moore Threads and Ascend. There
// is one implementation, over a table of functions; an adapter for each vendor
// fills the table and irons out what differs. The libraries are opened at run
// time; where one is missing its family has no device, and says why.
//
// No adapter has been run on its vendor's hardware: each is tested against a
// stand-in library with the vendor's ABI. The comment at the head of each
// adapter says where its signatures and numbers come from.
//
// # Threads
//
// A runtime of this shape works with the device that the calling thread has
// chosen, and goroutines wander between threads. So every call that is about a
// device goes through one helper, device.on, which holds the thread, chooses
// the device and then calls. Nothing is restored afterwards, because every
// entry chooses for itself.
//
// # Streams
//
// Every copy has a stream to itself, from a free list, for as long as it runs:
// copies overlap, and an error that a stream tells belongs to the copy that
// waits for it. A copy returns when its stream is done, also from pageable
// memory, where a runtime may return from the call earlier.
//
// # Failure
//
// After some errors (an illegal address, a memory fault, a device that fell
// off the bus) a runtime refuses everything until the process ends. Such an
// error marks the device as failed: it takes a new epoch, its memories are
// devices.ErrLost from then on, and it gives out no new ones. Other devices go
// on.
//
// # Abilities
//
// What a library lacks is missing in its table, and a device then has no such
// method: there is one type for each combination of abilities (combine.go).
//
// # Lock order
//
//	device.life (for reading, by every operation; of two devices the one
//	that was opened first)
//	  table.peering (held while access between two devices is arranged)
//	  device.pins.mu (held while Close unlocks host memory)
//	  device.imports.mu (held while a handle is opened or closed)
//	    device.mu
//	Driver.table (a dl.Lazy, held while the library is opened)
//
// Only Close holds device.life for writing.
package cudalike
