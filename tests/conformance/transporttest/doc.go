// Package transporttest is the conformance list of the copy paths: what every
// pair of ends must do, whichever way the bytes take.
//
// A test of an engine calls [Run] once for each pair of ends that it can
// join. The ends of this package, [HostBytes], [Files], [Registrable] and
// [Device], cover one machine; a transport to a peer brings its own.
//
// [Simulated], [Fill] and [Check] are for the tests of transports to a peer,
// which have their memory in a region.Buffer.
package transporttest
