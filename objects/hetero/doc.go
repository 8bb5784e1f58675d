// Package hetero is the vocabulary of heterogeneous objects: keys that name
// memory of devices, handed over once, shared, or copied to the host and back.
// It has the calls, their options, results, futures and errors, and the checks
// that every call begins with. Package local serves them in the daemon's own
// process, package client over the admin socket.
//
// The calls are openYuanrong datasystem's heterogeneous objects by their names
// (v0.9.2, include/datasystem/hetero_client.h); where ours differ, the method
// says so, and docs/seeds.md has the whole map.
//
//	DevPublish ──> publish/KEY ──> DevSubscribe        once, then it is gone
//	DevMSet    ──> keys/KEY    ──> DevMGet             memory of the client
//	MSetD2H    ──> keys/KEY    ──> MGetH2D, DevMGet    a copy in host memory
//
// A key has one namespace for what is set and another for what is published.
//
// # Lock order
//
// Future.mu is a leaf. What Then has called is called without it.
package hetero
