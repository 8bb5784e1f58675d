// Package client speaks to the admin socket of a mount. Its types are those
// of package adminapi.
//
// Beside the calls of the admin API, of which a Client is one socket's, there
// are functions that take the path of a file and find the daemon of its mount
// by themselves. They share the memory behind the file with other processes:
//
//   - Map has the bytes of a file in the host's memory as a slice.
//   - OpenExport names the memory of a file, for whichever library opens it: a
//     descriptor, or a vendor's handle.
//   - Bind makes memory of this process, or another, a file.
//
// Who calls may read and write the file. The kernel tells the daemon who that
// is, and the file's descriptor, which goes along, that he can reach it.
//
// # Lock order
//
// No locks.
package client
