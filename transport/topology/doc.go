// Package topology is how devices, network cards and machines are joined: which
// links there are, which way a transfer takes, and in which order a ring of
// ranks uses the fast ones.
//
//	g, err := topology.Discover(topology.Options{Devices: infos})   // of this machine
//	g, err := topology.Parse(text)                                  // topology.json and others
//	route, err := g.Route("cuda0", "cuda3", 1<<20)
//	order, err := g.Ring([]topology.ID{"cuda0", "cuda1", "cuda2", "cuda3"}, 1<<20)
//
// # What a graph is made of
//
// Devices have memory, or are where bytes pass: NUMA nodes, PCI switches,
// network cards. Links join two of them and have a class, from the fastest kind
// to the slowest. A link's bandwidth and latency are what a file or sysfs says;
// where neither does they are the class's (see Class.Typical) and the link says
// Assumed. They are for choosing between ways. How fast a group of ranks really
// is, package collective measures.
//
// # The time of a route
//
// NUMA nodes, switches and network cards pass bytes on as they come, so a way
// through them takes the sum of the latencies and size divided by the slowest
// bandwidth. A device with memory of its own takes all of it before it passes
// it on, so each such stretch of the way counts by itself. A way with more links
// is taken only where it is really faster.
//
// # What is read
//
// topology.json as Encode writes it; HCCL's rank tables of version 1 and 2.0 and
// topology files of version 2.0. They name no bandwidths, so all their links are
// Assumed. What a file claims is bounded before memory is taken for it.
//
// A graph does not change once it is made, and may be used from any goroutine.
//
// # Lock order
//
// No locks.
package topology
