// Package topology describes how devices, network cards and machines are
// connected: which links exist, which route a transfer takes, and in which order
// a ring of ranks uses the fast links.
//
//	g, err := topology.Discover(topology.Options{Devices: infos})   // of this machine
//	g, err := topology.Parse(text)                                  // topology.json and others
//	route, err := g.Route("cuda0", "cuda3", 1<<20)
//	order, err := g.Ring([]topology.ID{"cuda0", "cuda1", "cuda2", "cuda3"}, 1<<20)
//
// # What a graph is made of
//
// A device has memory, or is a point that bytes pass through: a NUMA node, a PCI
// switch, a network card. A link joins two devices and has a class, from the
// fastest kind to the slowest. A link's bandwidth and latency come from a file or
// sysfs; where neither has them, the class supplies them (see Class.Typical) and
// the link is marked Assumed. They serve to choose between routes. Package
// collective measures how fast a group of ranks really is.
//
// # The time of a route
//
// NUMA nodes, switches and network cards forward bytes as they arrive, so a route
// through them takes the sum of the latencies plus the size divided by the
// slowest bandwidth. A device with memory of its own receives everything before
// it forwards it, so each such stretch of the route counts separately. A route
// with more links is used only where it is really faster.
//
// # Input formats
//
// topology.json as Encode writes it; HCCL's rank tables of version 1 and 2.0, and
// topology files of version 2.0. HCCL's files contain no bandwidths, so all their
// links are Assumed. Sizes that a file claims are bounded before memory is
// allocated for them.
//
// A graph does not change once it is made, and may be used from any goroutine.
//
// # Lock order
//
// No locks.
package topology
