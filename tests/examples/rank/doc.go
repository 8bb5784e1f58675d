// Package rank is what the examples have in common: a rank of `hmcfs run` with
// its domain, its buffers and the windows of all.
//
// # Lock order
//
// No locks.
package rank
