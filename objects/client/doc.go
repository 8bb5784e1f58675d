// Package client is a client of a mount's admin socket. It uses the types of package adminapi.
//
// A Client is bound to one socket and has the calls of the admin API. In addition there are
// functions that take the path of a file and find the daemon of its mount themselves. They
// share the memory behind the file with other processes:
//
//   - Map returns the bytes of a file in host memory as a slice.
//   - OpenExport names the memory of a file in a form that other libraries can open: a
//     descriptor, or a vendor's handle.
//   - Bind makes memory of this process, or of another, the content of a file.
//
// A Session is a hetero.Client of this process: keys that name its memory, hand-overs, and
// copies in host memory. All calls are frames on the session's connection, at the same time; descriptors
// are passed on a channel beside it.
// Session.Set and Session.Get move values between keys and ordinary memory of the caller. Values of up to 64 KiB go through
// 32 slots in one piece of shared memory, which the session registers at the first of these calls, and larger ones through
// shared memory of their own. At most 32 are moved at once; further calls wait. Get needs two calls to the daemon, for the size and for
// the bytes, but only one while values have the same size, as blocks of a cache do: the first value of
// another size is then a failed key of h2d in the daemon's metrics.
// Session.Files are the files of the mount, also where nothing is mounted: an fs.FS that can be
// written.
//
// The goroutines that wait for answers read the connection in turns, so that a call needs no other
// goroutine; while nobody waits, nobody reads, and the end of the daemon is noticed by the next call. If
// another daemon may follow, a session that has memory or open files has a goroutine that notices the end itself, and one that then
// looks for the next daemon: it registers the memory and opens the files again, and asks the calls that were not answered.
// A function that is called for a key, that of Each or of Future.Then, keeps its goroutine from
// reading: if no other waits, and answers fill the buffers of the connection for 15 to 30 s, the daemon
// ends the session.
// Cancelling the context of a call makes the call end: it returns once the daemon no longer
// accesses the caller's memory, or at once if there is no daemon. One that does not end the call within 30 s may still
// access it. Watch reports events of keys, and Keys lists the existing
// ones. These two, and the calls about files of a mount, each open a session of their own.
//
// The caller must be allowed to read and write the file. The daemon learns the caller's
// identity from the kernel, and the file's descriptor, which is passed along, proves that the
// user can reach the file.
//
// # Lock order
//
//	File.mu
//	Session.role (a channel; held while frames are read, and while the next daemon is looked for)
//	Session.sending
//	Session.mu
//	answer.mu
//	Watch.mu
//
// Each of the first five may be acquired with those above it held. File.mu is held during a call that uses the position of the file, and
// Session.sending while a frame is written; Session.mu and answer.mu guard memory alone. Watch.mu is held with no other.
package client
