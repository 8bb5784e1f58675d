// Package moves is how the families that move bytes by commands cut long
// moves: in pieces, between two of which a context is looked at, and, where
// the ranges of a copy overlap, in an order that no driver has to promise.
//
// # Lock order
//
// No locks.
package moves
