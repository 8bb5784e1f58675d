// Package fs implements the POSIX filesystem on top of package objects. It is the only
// importer of go-fuse and the only package that deals in errnos.
//
// A FUSE node id is the inode number, which package metadata never reuses. The package
// therefore keeps no state for an inode that is not open, the kernel's file handles survive a
// remount, and there is no table of nodes to lock; docs/adr/0002-raw-fuse.md gives the
// reasons. The nodes of views, which have no records, are the exception (view.go).
//
// Inode numbers are divided as follows:
//
//	1                root: the devices' directories, publish/, keys/, nodes/, .hmcfs/
//	2 … 1023         keys/, nodes/, .hmcfs/ and its files; 16 is publish/, the store's
//	1024 …           the store's inodes, as metadata numbers them
//	1<<60 | n<<44 | ino  inode ino of another node, n being the index of its
//	                 incarnation; ino 1 is nodes/NODE itself
//	1<<61 | hash     FILE.tensors/ and everything in it
//	1<<62 | ino      the symlink keys/KEY of the object ino
//	1<<62 | 1<<60 | hash  the same for a key of another node
//
// # Sessions
//
// Files serves callers that reach the files without the kernel. A Guest walks along paths, checks
// permissions with the rules of cluster.User, and sends filesystem the requests that a kernel would
// send, so both have the same names, bytes and errnos. In the place of a process ID its requests
// have the number of the guest (guests.go). Once there has been a guest, the kernel caches names and
// attributes as briefly as with other nodes, and is notified of changes in the same way; it never
// caches for long that a name is missing. A name that it has cached before the first guest came, and
// that a guest has moved away, can be visible until its time is over.
//
// # How a request is handled
//
// go-fuse calls a method of filesystem on a goroutine of its own for each request. The method
// makes one call of the tree (cluster.Mesh, which holds the files of this node and of all
// others) or of an open file, and converts the error to an errno (errno.go). call.go
// determines how long a call may take and on whose behalf it is made. Namespace operations of
// this node cannot be interrupted; operations that move bytes stop when the kernel interrupts
// them, and return the number of bytes moved.
//
// An inode that is not part of the tree is a providedInode (reserved.go). Each kind is a type:
// the root (rootdir.go), .hmcfs/ and its files (control.go), keys/ and its symlinks (keys.go,
// otherkeys.go), nodes/ (nodesdir.go) and views (view*.go). Passthrough, publishing, sharing
// and views are available for files of this node only.
//
// # Names that hmcfs itself adds and removes
//
// hmcfs adds and removes names in publish/ and in the directories of keyed objects, and
// removes the names of files whose time to live has expired. The kernel does not cache the
// names of those directories, and no name for longer than its file lives. The daemon never
// asks the kernel to drop a name: that request waits for a lock that a rename can hold while
// it waits for the daemon, and a daemon killed at that point could not exit. Where the kernel
// caches such a name nevertheless, ESTALE makes it repeat the lookup (fleeting.go, asked.go).
//
// A read from a file of publish/ is recorded before it is answered, since a reader that has
// been given all of the file has received it (publish.go). The kernel therefore never serves
// such a file itself, and its pages, which all openers of a file share, are reserved for a
// single reader (published.go). The state of a held mount has how far each of them is read, for
// the process that follows (heldreading_unsafe.go).
//
// # Shared maps and write calls
//
// A file that is open for reading and writing can be stored to through a shared map while
// write calls change it behind the kernel's page cache. mapped.go prevents the writeback of
// such a page from overwriting data written by a call.
//
// # Other nodes
//
// With Options.Cluster, a request for an inode of another node becomes one request to that
// node, which checks the caller's permissions again; creds.go supplies the caller's groups for
// that. An inode of an incarnation that has ended, or one that its owner no longer has, is
// ESTALE, on which the kernel repeats the lookup of the name.
//
// The kernel caches names and attributes of other nodes for 20 ms, so that a program's calls
// about one file cost one request, and those of this node for 1 s, since other nodes change
// them. On a known change the daemon invalidates attributes, and pages of maps. Names of this
// node that others have removed are answered with ESTALE.
//
// Requests to other nodes end when their caller is killed, and within a bounded time in any
// case. A node that cannot be reached is EHOSTUNREACH, or EIO when reading or writing an open
// file.
//
// Files of other nodes have no views of their tensors, and file locks are local to one node.
// publish/ contains what this node publishes; what other nodes publish is received with the
// calls of objects/hetero.
//
// # A mount that outlives its process
//
// With Options.Keeper, holding stands between go-fuse and filesystem. Mount gives the keeper, a
// process that outlives this one, the descriptor of the mount and the heldState: shared memory with
// the kernel's first message and each open handle, which is stored before the kernel learns of it.
// When this process has died, Resume in the next one opens those handles under their numbers,
// continues to read at the kept descriptor, and has the kernel send again what was not answered
// (held.go). Most requests can be carried out twice; heldresent.go decides for the others whether
// that has happened. docs/adr/0025-a-holder-keeps-the-mount.md gives the reasons.
//
// The kernel fails a request with EIO, instead of sending it again, if the process is killed while
// a copy of the request or its answer waits for a page of the process. So keepBuffers has go-fuse's
// buffers consist of pages that are there, and populate does the same for mapped memory just before
// it is an answer. A process that ends on purpose, for an upgrade, calls Server.Leave first: it
// reads no more requests, and returns when no thread is in a copy any more.
//
// Notifications for which the kernel waits are sent by the keeper (heldKernel), since a process
// with a thread that waits in the kernel can't die.
//
// # Lock order
//
// No lock is held across a call of the store, the engine, the cluster or the kernel, with
// these exceptions:
//
//   - backing.mu is held while one backing file is registered with the kernel;
//   - dirHandle.mu is held while its directory is read: it orders the readers of one open
//     directory and nothing else;
//   - mapped.turn is held while a file that can be stored to through a map is read for pages,
//     or changed;
//   - mapped.change is held longer, also while the kernel drops pages, which may make it read
//     and write back; so neither of those takes it. Nor does a truncation, during which the
//     kernel writes no page back;
//   - fleeting.sweeping is held while the store is asked about inodes that the kernel may have
//     forgotten. No lock is held when it is taken; fleeting.mu is taken under it.
//
// mappable.mu comes before mapped.mu, and mapped.turn before both. backings.mu, readAhead.mu,
// dirHandle.mu, errnoTable.mu, published.mu, fleeting.mu, asked.mu, heldState.mu, shared.mu,
// creds.mu, guests.mu, mapped.mu and the locks of the handle tables are leaves. So are views.mu, except
// that the store counts references under it, and otherKeys.mu, before heldState.mu.
package fs
