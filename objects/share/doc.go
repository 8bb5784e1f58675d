// Package share defines the text form of memory that two processes share: the value written to
// user.hmc.bind, read from user.hmc.handle, and sent over the admin socket. It is JSON, so
// that a shell, Python and Go can all write and read it:
//
//	{"family":"cuda","device":"GPU-8f…","pid":4711,"size":4096,
//	 "dtype":"float32","shape":"32,32",
//	 "pieces":[{"kind":"ipc","handle":"00ff…","offset":0,"size":4096}]}
//
// # Lock order
//
// No locks.
package share
