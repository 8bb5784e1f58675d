// Package opencl is the device family of every OpenCL 1.2 device: GPUs of all
// vendors, and the host's processor through PoCL. The library is opened at
// run time; where it is missing the family has no device, and says why.
//
// Bytes are moved by commands alone. Elements are combined by kernels
// (kernels.cl), which are compiled for a type when it is first asked for; a
// device that is the host's processor has its elements combined by the host
// instead, which is as fast. So where that is the only device no driver's
// compiler cache is used, and a daemon without HOME works. A device whose
// arithmetic does not round as the host's does, or that has no compiler, answers
// devices.ErrUnsupported, and the host does the work; the log says why, once.
//
// # Queues
//
// A device has a context of its own and three queues that work in order: host
// to device, device to host, and within the device. So the three directions
// overlap, and commands of one direction do not. Long moves are cut in
// pieces, between two of which a context is looked at.
//
// # Memory that the host shares
//
// A device that says CL_DEVICE_HOST_UNIFIED_MEMORY is opened as one that can
// show its memory (devices.HostMapper), unless its spec says map=off. OpenCL
// lets the host touch a buffer only while it is mapped, and lets the device
// write it, or read what the host may write, only while it is not. A map and
// its end are commands, each many times dearer than moving a page, so a
// buffer keeps one map of the whole that is ended as late as possible:
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
// A host user is a view that somebody holds, or a copy that this package
// makes through the map: CopyIn and CopyOut always, Copy and Fill when they
// can't be a command. The rules are:
//
//   - H1: host users and commands never use one buffer at the same time. A
//     buffer is unmapped before a command and mapped before a host user.
//   - H2: a command never waits for host users. If the host uses the source
//     or the destination, or waits for it, that piece of a Copy or Fill is
//     done by the host, through the maps. So holding a view can't block
//     anything, not even a Copy by the same goroutine from the same buffer,
//     and readers that never pause can't starve a writer.
//   - H3: a host user waits only for commands in flight, each of one piece of
//     64 MiB at most, and no further one begins while it waits. So writers
//     that never pause can't starve a reader. The wait ends with the context.
//   - H4: a Copy between ranges of one buffer that overlap, which OpenCL
//     refuses, is the host's. A device that can't be mapped does it in pieces
//     that don't overlap, or through a small buffer.
//
// A view keeps its memory alive, and Close leaves a buffer alone until its
// last view is released.
//
// # Allocation
//
// Alloc has the driver take the memory at once. Of memory that the host
// shares every page is brought in, and an allocation larger than what the
// host has available fails, because the host would not refuse it later: it
// would kill somebody. Of a device's own memory one byte is written, which
// brings the whole allocation.
//
// # Streams
//
// A stream of a device with memory of its own is a queue, its events are
// markers, and one stream waits for another's by a barrier: the host has no part
// in it. What is behind something from elsewhere (a devices.Signal, an event of
// another device) the host keeps, and gives to the queue once that has happened.
// Where the host shares the memory the host drives the streams, because a queue
// can't wait for host users (H2).
//
// # Lock order
//
//	device.life (for reading, by every operation)
//	  stream.mu
//	    the locks of devices.Queue
//	  kernels.mu (held while a program is built or a kernel started)
//	  buffer.mapMu (held while a map is made or ended)
//	  gate.mu
//	  device.mu
//
// Those of one depth are never held together. Being a user of a buffer (gate) is
// not a lock, yet orders like one: it is taken after device.life, for all
// buffers of an operation at once, and mapMu is taken inside it.
package opencl
