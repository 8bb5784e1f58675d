// Package commtest is the conformance suite of the communicator: the requirements for every
// transport between two ranks.
//
// A test calls [Run] once for each transport. Content depends on its position, so that a byte
// in a wrong place or of an earlier round is detected. When a peer misbehaves, another pair
// keeps working and must not be affected.
package commtest
