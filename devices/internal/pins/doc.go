// Package pins tracks the host memory that one driver has registered, for all of its
// devices. A driver registers a range for the whole process, refuses one that overlaps with
// another, and may refuse a copy of partly registered memory; so the devices of a driver
// share one Table.
//
// # Life cycle of a range
//
//	the first Pin of it ──> registered
//	                          │  Pin of it or of a part, by any device
//	                          ▼
//	       the last use ends ──> unregistered
//
// A device treats memory as pinned only if it has a use of its own: another device's use
// may end during the copy.
//
// # Lock order
//
//	Table.change (held while the driver registers and unregisters)
//	  Table.mu
package pins
