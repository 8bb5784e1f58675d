// Package devices defines the interface to device memory: devices that memory can be
// allocated from and copied to and from, and the ownership of that memory. It imports
// nothing else of hmcfs except its subpackage elem.
//
// # Lifetime of a Memory
//
//	Device.Alloc ──> Memory (one reference)
//	                   │  Retain / Release, any number of times
//	                   ▼
//	             last Release ──> the device gets the bytes back, once
//
// A Memory is the only owner of an allocation. A Span is a part of it, checked against its
// size, and is the argument of every copy: no raw pointer crosses the boundary of this
// package, except the bytes of a View.
//
// # Epochs
//
// Each incarnation of a device's memory has an Epoch. When the memory is lost (the process
// that held it died, the card was reset, a simulated device crashed), the next incarnation
// gets another epoch, and a record of an older one can't be read as if it were live.
//
// A device that is Lasting allocates behind descriptors. If a DescriptorStore, in another
// process, has these when this process dies, the next process resumes the epoch with the same
// memory. They are files of the host for simulated devices and for OpenCL on the host's
// processor, and descriptors of the driver for CUDA. Other families have no such descriptors,
// and their memory ends with the process.
//
// # Abilities
//
// [Device] contains the methods that every family has. An ability that only some families
// have is an interface of few methods (HostMapper, PeerCopier, …), used through a helper
// function of this package, which documents the behaviour when the ability is absent.
//
// # Lock order
//
// No lock of this package is held while a device moves bytes: those of Queue and Signal are
// leaves. Memory's reference count is atomic; Registry is immutable once built.
package devices
