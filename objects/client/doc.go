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
// A Session is a hetero.Client of this process: keys that name its memory,
// hand-overs, and copies in the host's memory. Each of its calls has a
// connection for as long as it lasts, which the next one takes over. A context
// that ends takes the call to its end: it returns when the daemon has left the
// caller's memory alone. Watch tells what happens to keys, and Keys which are
// there; both need no session.
//
// Who calls may read and write the file. The kernel tells the daemon who that
// is, and the file's descriptor, which goes along, that the user can reach it.
//
// # Lock order
//
//	Session.mu
//
// It guards lists of connections, and is held across no call.
package client
