// Package metadata keeps the namespace and the object records of a mount, in
// transactions over a small ordered key-value seam. It knows nothing of
// devices: a placement is plain data to it.
//
// A Store gives what a POSIX tree needs: inodes, directory entries, hard
// links, rename, extended attributes; and what hmcfs adds: keys that objects
// carry, the devices' epochs, and the mappings from an object's bytes to
// device memory. Each operation is one transaction: it happens whole or not
// at all, whatever fails and whenever the process dies. How the operations
// behave is written once, here, above the seam; badgerkv and memkv only store.
//
// # Keys
//
// Numbers are big-endian, so that keys sort as numbers do. Each value begins
// with the version of its record (see codec.go).
//
//	'S'                            superblock: format, generation, hash key
//	'A'                            the next inode number after a restart
//	'v' device                     root inode and epoch of a device
//	'i' ino:8                      inode: attributes, placement, counters
//	'd' parent:8 cookie:8          directory entry: name, inode, type
//	'l' ino:8 parent:8 cookie:8    a link of an inode besides its primary one
//	'x' ino:8 name                 extended attribute
//	'm' ino:8 offset:8             mapping: one pinned buffer of the content
//	'k' key                        the inode that carries the key
//	'z' ino:8                      inode that is gone, some records left over
//	'b' ino:8                      binding: how to find another process's memory
//	'e' sec:8 nsec:4 ino:8         the inode ends at that time
//	'n' device                     bond: what the device's memory has to say
//
// # Directory entries and cookies
//
// A cookie has the 63 bits that the kernel keeps of a directory offset:
//
//	bit 63   62                      8  7        0
//	 0    | 55 bits of SipHash(name)   |   slot   |
//
// The hash key is random for each store. Nearly every entry has slot 0 and is
// found by one Get. Names of one hash take the slots 1 to 255; then the entry
// in slot 0 is marked as chained, and stays as a tombstone when its own name
// goes first. So a cookie never changes while its name stays, no two entries
// of a directory share one, and a listing that goes on after a cookie neither
// skips nor repeats a name.
//
// # Links
//
// An inode names one of its links, the primary one, in Parent and Name; paths
// are built from it. Only an inode with more links than that has 'l' records.
// When the primary link goes, another is promoted.
//
// # Bindings
//
// A file can be bound to memory of another process. Its inode says so in
// Bound, and only such an inode is written as version 2, so that a program
// that does not know bindings refuses it, and reads all others. The 'b' record
// is plain data to this package; it goes with the inode, or with Unbind.
//
// # publish/
//
// The directory PublishIno is in every store of format 2; Open makes it in one
// of format 1. Nobody names it: it has no entry in the root, but says that it
// is "publish" there, so that paths read "publish/NAME". It has no device, and
// what is in it keeps its own: only regular files with one link, which come by
// Publish or Put, and leave by Rename or MoveDevice, or are removed. So a file
// comes and goes by its name alone. One that says Taken was received: its
// bytes may be somewhere else by now, and all that can be done is to remove it.
//
// # Expiry
//
// An inode that ends says when in Expires, and an 'e' record finds it in time:
// their keys sort by the time, with the sign bit of the seconds turned over.
// Nothing ends by itself; Expired lists what is over, and the caller removes
// it by its name. An inode that says Expires or Taken is written as version 3,
// and all others as before.
//
// # What holds
//
//   - Every change of a directory's entries rewrites the directory's inode
//     (size, times), so two of them never go unnoticed by each other.
//   - The size of a directory is the number of its entries; its link count is
//     2 plus the number of directories in it.
//   - Inode numbers come from batches whose end is stored before a number of
//     them is used, so none is given twice, not even after a crash.
//   - An 'e' record and the Expires of its inode are written in one
//     transaction, and so is the record's removal with the inode.
//   - What a transaction makes enters the cache before the commit, so that
//     nobody who finds it behind that can be overtaken by its first state.
//   - An inode without links has no records, except mappings and attributes
//     that a 'z' record announces. They are removed right after, attributes that
//     are held by ReleaseXattrs, and all that is left by the next Open. While
//     attributes are held, the value of the 'z' record is the inode.
//
// # Lock order
//
// Correctness rests on the transactions alone. Locks only keep operations
// that would conflict, and so be repeated, from running at once:
//
//	Store.alloc.mu            (refilling the batch of inode numbers)
//	Store.locks, ascending    (striped by inode number: the directories that
//	                           an operation changes, or the inode of Update)
//	  the KV's own locks
//
// Store.alloc.mu is never held together with a stripe. An inode that is only
// reached through a name is not locked: a conflict there is rare, and the KV
// repeats the transaction.
package metadata
