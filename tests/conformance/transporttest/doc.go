// Package transporttest is the conformance suite of the copy paths: the requirements for every
// pair of ends, whichever route the bytes take.
//
// A test of an engine calls [Run] once for each pair of ends that the engine can connect. The
// ends of this package, [HostBytes], [Files], [Registrable] and [Device], cover one machine; a
// transport to a peer supplies its own.
//
// [Simulated], [Fill] and [Check] are for the tests of transports to a peer, which have their
// memory in a region.Buffer.
package transporttest
