// Package commtest is the conformance list of the communicator: what holds
// whichever way the bytes take between two ranks.
//
// A test calls [Run] once for each way. Content depends on its position, so a
// byte in a wrong place, and one of an earlier round, are seen; where a peer
// misbehaves, another pair works on and must not notice.
package commtest
