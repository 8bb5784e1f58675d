// Package life limits the operations of a device to the time from Open until Close, which
// waits for the operations in flight.
//
// # Lock order
//
//	Life (for reading, by every operation; for writing, by Close)
package life
