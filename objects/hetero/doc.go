// Package hetero defines the API of heterogeneous objects: keys that name memory of devices,
// which is handed over once, shared, or copied to the host and back. It has the calls, their
// options, results, futures and errors, and the checks that every call starts with. Package
// local serves the calls in the daemon's own process, package client over the admin socket.
//
// The calls have the names of openYuanrong datasystem's heterogeneous objects (v0.9.2,
// include/datasystem/hetero_client.h). Where the behaviour differs, the method says so, and
// docs/seeds.md has the complete mapping.
//
//	DevPublish ──> publish/KEY ──> DevSubscribe        once, then it is gone
//	DevMSet    ──> keys/KEY    ──> DevMGet             memory of the client
//	MSetD2H    ──> keys/KEY    ──> MGetH2D, DevMGet    a copy in host memory
//
// Keys that are set and keys that are published are two separate namespaces.
package hetero
