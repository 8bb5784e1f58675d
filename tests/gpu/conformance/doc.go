// Package conformance runs the suite of tests/conformance/devicetest on one real device. Its
// test binary is copied to machines without a toolchain, and needs no mount there.
//
// # Lock order
//
// No locks.
package conformance
