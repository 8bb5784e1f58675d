// Package devices is device memory and who owns it: what one can allocate
// from, and copy to and from. It imports nothing else of hmcfs.
//
// # The life of a memory
//
//	Device.Alloc ──> Memory (one reference)
//	                   │  Retain / Release, any number of times
//	                   ▼
//	             last Release ──> the device gets the bytes back, once
//
// A Memory is the only owner of an allocation. A Span names a part of it,
// checked against its size, and is what every copy takes: no raw pointer
// crosses this package's border, apart from the bytes of a View.
//
// # Epochs
//
// A device has an Epoch, one incarnation of its memory. When the memory is
// lost (the process that held it died, the card was reset, a simulated
// device crashed) the next incarnation has another epoch, and a record of an
// older one can't be read as if it were live.
//
// # Abilities
//
// [Device] is what every family has. What only some have is a one-method
// interface (HostMapper, PeerCopier, …) reached through a helper of this
// package, which documents what happens where the ability is absent.
//
// # Lock order
//
// No lock of this package is held while a device moves bytes: those of Queue and
// Signal are leaves. Memory's reference count is atomic; Registry is immutable
// once built.
package devices
