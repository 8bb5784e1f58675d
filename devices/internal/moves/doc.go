// Package moves splits long copies, for families that copy bytes by commands: into pieces,
// between which the context is checked, and, if the ranges of a copy overlap, in an order
// that does not depend on any guarantee of a driver.
//
// # Lock order
//
// No locks.
package moves
