// Package local serves heterogeneous objects in the daemon's own process: it implements
// hetero.Client over an object store. It converts lists of blobs to memory of the store,
// checks all of a call before anything moves, waits for keys that do not exist yet, and
// reports failures as hetero's errors.
//
// A missing key does not cost a goroutine: the calls wait, one queue of the store's events
// wakes them, and a few goroutines do the work that has become possible.
//
// # Other machines
//
// A client works on an objects.Keys, which may cover the keys of all nodes. A key that a call
// waits for may appear on this node or on another. Replicas are of keys of this node only.
//
// # Lock order
//
// Client.mu, background.mu, subscriptions.mu and waiter.mu are leaves. No lock is held across
// a call of the store, nor while a future is completed.
package local
