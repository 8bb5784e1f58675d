// Package conformance is the suite of tests/conformance/devicetest for one real device.
// Its test binary is carried to machines without a toolchain, and needs no
// mount there.
//
// # Lock order
//
// No locks.
package conformance
