// Package life is when a device of a family takes operations: from Open until
// Close, which waits for those in flight.
//
// # Lock order
//
//	Life (for reading, by every operation; for writing, by Close)
package life
