// Package streams implements devices.Stream for devices that order the work themselves, by
// a few calls of their family (Calls).
//
// A goroutine of the host submits the work, and waits only for events that the device can't
// wait for: a devices.Signal, an event of another device, work of the host. So only the
// host waits for such events, and the device's stream never contains work that might never
// complete.
//
// # Lock order
//
//	the lock of Calls.Enter (for reading)
//	  Stream.mu
//	    the locks of devices.Queue and of Calls.Done
package streams
