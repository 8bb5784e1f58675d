// Package rank holds the code that the examples share: a rank of `hmcfs run` with its domain,
// its buffers and the windows of all ranks.
//
// # Lock order
//
// No locks.
package rank
