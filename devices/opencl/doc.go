// Package opencl implements the device family of all OpenCL 1.2 devices: GPUs of all
// vendors, and the host's processor through PoCL. The library is opened at run time; if it
// is missing, the family has no devices and reports why.
//
// Bytes are copied by commands only. Elements are combined by kernels (kernels.cl), which
// are compiled for a type when it is first used; for a device that is the host's processor
// the host combines the elements instead, which is as fast. So if that is the only device,
// the driver's compiler cache is not used, and a daemon without HOME works. A device whose
// arithmetic does not round as the host's does, or that has no compiler, returns
// devices.ErrUnsupported, and the host does the work; the log reports why, once.
//
// # Queues
//
// A device has its own context and three in-order queues: host to device, device to host,
// and within the device. So the three directions overlap, and commands of one direction do
// not. Long copies are cut into pieces, and the context is checked between them.
//
// # Memory shared with the host
//
// A device that reports CL_DEVICE_HOST_UNIFIED_MEMORY is opened as one that can map its
// memory (devices.HostMapper), unless its spec says map=off. OpenCL allows the host to
// access a buffer only while it is mapped, and allows the device to write it, or to read
// memory that the host may write, only while it is not. Mapping and unmapping are commands,
// each far more expensive than copying a page, so a buffer keeps one map of the whole that
// is ended as late as possible:
//
//	             first host user                    command in
//	unmapped ─────────────────────> mapped, ──────────────────┐
//	   ▲                            hosts > 0                  │ not now:
//	   │                          │ ▲      │ ▲                 │ the host does
//	   │              last leaves │ │ next │ └─────────────────┘ the work
//	   │                          ▼ │
//	   │  command in            mapped,
//	   ├───────────────────────  hosts = 0
//	   ▼
//	commands > 0, unmapped: host users wait, and no further command begins
//
// A host user is a view that is held, or a copy that this package makes through the map:
// CopyIn and CopyOut always, Copy and Fill if they can't be a command. The rules are:
//
//   - H1: host users and commands never use one buffer at the same time. A buffer is
//     unmapped before a command and mapped before a host user.
//   - H2: a command never waits for host users. If the host uses the source or the
//     destination, or waits for it, that piece of a Copy or Fill is done by the host,
//     through the maps. So holding a view can't block anything, not even a Copy by the
//     same goroutine from the same buffer, and readers that never pause can't starve a
//     writer.
//   - H3: a host user waits only for commands in flight, each of one piece of 64 MiB at
//     most, and no further command starts while it waits. So writers that never pause
//     can't starve a reader. The wait ends with the context.
//   - H4: a Copy between overlapping ranges of one buffer, which OpenCL refuses, is
//     done by the host. A device that can't be mapped does it in pieces that don't
//     overlap, or through a small buffer.
//
// A view keeps its memory alive, and Close does not free a buffer until its last view is
// released.
//
// # Allocation
//
// Alloc makes the driver allocate the memory immediately. For memory shared with the host
// every page is populated, and an allocation larger than the host's available memory fails:
// otherwise the host would not refuse it later, but kill a process. In a device's own
// memory one byte is written, which makes the driver allocate everything.
//
// Memory of the host's processor is mapped by this package and used in place by the driver.
// So it may also be a file (AllocIn), whose bytes outlive the process. Any other driver may
// copy what it is told to use in place; its devices return devices.ErrUnsupported.
//
// # Streams
//
// A stream of a device with its own memory is a queue, its events are markers, and one
// stream waits for another's event by a barrier, without the host. Work after an external
// event (a devices.Signal, an event of another device) is held by the host, and submitted
// to the queue once the event has happened. If the host shares the memory, the host drives
// the streams, because a queue can't wait for host users (H2).
//
// # Lock order
//
//	device.life (for reading, by every operation)
//	  streams.Stream.mu
//	    the locks of devices.Queue
//	  kernels.mu (held while a program is built or a kernel started)
//	  buffer.mapMu (held while a map is made or ended)
//	  gate.mu
//	  device.mu
//
// Locks of the same depth are never held together. Being a user of a buffer (gate) is not a
// lock, but has a place in the order: it is acquired after device.life, for all buffers of
// an operation at once, and mapMu is acquired inside it.
package opencl
