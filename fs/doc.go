// Package fs is POSIX over objects: the only importer of go-fuse and the only
// place that knows errno.
//
// The kernel's node id is the inode number, which the metadata never gives
// twice. So the package keeps nothing for an inode that is not open, a file
// handle of the kernel's survives a remount, and there is no table of nodes
// to lock. docs/adr/0002-raw-fuse.md tells why. The nodes of views, which have
// no records, are the exception (see view.go).
//
// The numbers are divided so:
//
//	1                root: the devices' directories, publish/, keys/, .hmcfs/
//	2 … 1023         keys/, .hmcfs/ and what is in it; 16 is publish/, the store's
//	1024 …           the store's inodes, as metadata numbers them
//	1<<61 | hash     what is in FILE.tensors/, and that itself
//	1<<62 | ino      the symlink keys/KEY of the object ino
//
// # The way of a request
//
// go-fuse calls a method of filesystem on a goroutine of the request's own.
// The method turns the request into one call of objects.Store or
// objects.File and its error into an errno (errno.go). Operations of the
// namespace can't be interrupted; those that move bytes stop when the kernel
// says so, and answer with what they moved.
//
// # Names that come and go by themselves
//
// In publish/ and where keyed objects are made, hmcfs makes and removes names
// by itself, and files with an end lose theirs. The kernel keeps no names of
// those directories, and no name longer than its file. It is never told to
// drop a name: that waits for a lock which a rename can hold that waits for
// the daemon, and a daemon killed in it could not be ended. Where it keeps one
// all the same, ESTALE makes it look again (fleeting.go, asked.go).
//
// What is read of a file of publish/ is noted before it is answered, since who
// was given all of it has received it (publish.go). So the kernel serves
// nothing of it by itself, and its pages, which all who have the file open
// share, are for one reader alone (published.go).
//
// # Lock order
//
// No lock is held across a call of the store, of the engine or of the kernel,
// apart from backing.mu, which is held while one backing file is registered
// with the kernel. backings.mu, a readAhead.mu, a dirHandle.mu, errnoTable.mu,
// published.mu, fleeting.mu, asked.mu and the locks of the handle tables are
// leaves, apart from views.mu, under which the store counts a reference;
// dirHandle.mu is held while its directory is read, which orders readers of one
// open directory and nothing else.
package fs
