// Package local serves heterogeneous objects in the daemon's own process: a
// hetero.Client over an object store. It turns lists of blobs into memory of
// the store, checks all of a call before anything moves, waits for keys that
// are not there yet, and tells what went wrong by hetero's errors.
//
// Keys that are missing wait in their call, not in goroutines: one queue of the
// store's events wakes a call, and a few goroutines carry out what it can do.
//
// # Other machines
//
// A client holds objects.Keys, which may be those of all nodes. What a call waits for may
// come here or there. Replicas are of keys that are here.
//
// # Lock order
//
// Client.mu, background.mu, subscriptions.mu and waiter.mu are leaves. No lock
// is held across a call of the store, nor while a future's end is told.
package local
