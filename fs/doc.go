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
//	1                root: the devices' directories, publish/, keys/, nodes/, .hmcfs/
//	2 … 1023         keys/, nodes/, .hmcfs/ and what is in it; 16 is publish/, the store's
//	1024 …           the store's inodes, as metadata numbers them
//	1<<60 | n<<44 | ino  the inode ino of another node, n the index of its
//	                 incarnation; ino 1 is nodes/NODE itself
//	1<<61 | hash     what is in FILE.tensors/, and that itself
//	1<<62 | ino      the symlink keys/KEY of the object ino
//	1<<62 | 1<<60 | hash  the same of another node's key
//
// # The way of a request
//
// go-fuse calls a method of filesystem on a goroutine of the request's own. The method
// turns the request into one call of the tree (cluster.Mesh, which has this node's files
// and those of all others) or of an open file, and its error into an errno (errno.go).
// call.go says until when a call may take and on whose behalf it is made. Operations of the
// namespace of this node can't be interrupted; those that move bytes stop when the kernel
// says so, and answer with what they moved.
//
// What has no inode in the tree is a providedInode (reserved.go), each kind of which is a
// type with its answers: the root (rootdir.go), .hmcfs/ and its files (control.go), keys/
// and its symlinks (keys.go, otherkeys.go), nodes/ (nodesdir.go) and views (view*.go).
// Passthrough, publishing, sharing and views are for files of this node alone.
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
// # Maps beside calls
//
// What is open for reading and writing can be stored to through a shared map
// while calls change it past the kernel's pages. mapped.go keeps such a page,
// when it is written back, from replacing what a call has put.
//
// # Other nodes
//
// With Options.Cluster, a request for an inode of another node becomes one question to
// that node, which checks once more what the caller may; creds.go has the caller's groups
// for that. An inode of an incarnation that is gone, or that its owner does not have any
// more, is ESTALE, on which the kernel looks the name up anew.
//
// The kernel keeps names and attributes of other nodes for 20 ms, so that a
// program's calls about one file are one question, and ours for 1 s, since other
// nodes change them. Of what is known to have changed it drops attributes, and
// pages of maps. Names of ours that others have removed are made ESTALE.
//
// Questions end when their caller is killed, and in a bounded time at any rate.
// A node that can't be reached is EHOSTUNREACH, and EIO to who reads or writes
// an open file.
//
// Files of other nodes have no views of their tensors, and locks hold on one
// node alone. publish/ has what this node publishes; what others do is received
// by the calls of objects/hetero.
//
// # Lock order
//
// No lock is held across a call of the store, of the engine, of the cluster or
// of the kernel, apart from backing.mu, which is held while one backing file is
// registered with the kernel, and a dirHandle.mu, which is held while its
// directory is read, which orders readers of one open directory and nothing
// else, and mapped.turn, which is held while one file that can be stored to
// through a map is read for pages or changes. mapped.change is held longer,
// also while the kernel drops pages, for which it may read and write back; so
// neither of these takes it. A truncation, during which the kernel writes no
// page back, does not either. mappable.mu comes before mapped.mu, and mapped.turn
// before both. backings.mu, a readAhead.mu, a dirHandle.mu, errnoTable.mu,
// published.mu, fleeting.mu, asked.mu, otherKeys.mu, shared.mu, creds.mu,
// mapped.mu and the locks of the handle tables are leaves, apart from views.mu,
// under which the store counts a reference.
package fs
