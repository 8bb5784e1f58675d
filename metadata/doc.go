// Package metadata keeps the namespace and the object records of a mount, in transactions
// on a small ordered key-value store (KV). It does not access devices: a placement is plain
// data to it.
//
// A Store provides what a POSIX tree needs: inodes, directory entries, hard links, rename
// and extended attributes. It adds what hmcfs needs: the keys of objects, the epochs of
// devices, and the mappings from an object's bytes to device memory. Each operation is one
// transaction: it takes effect completely or not at all, whatever fails and whenever the
// process dies. The behaviour of the operations is implemented once, here; implementations
// of KV, such as badgerkv and memkv, only store.
//
// # Keys
//
// Numbers are big-endian, so that keys sort in numeric order. Each value begins with the
// version of its record (see codec.go).
//
//	'S'                            superblock: format, generation, hash key
//	'A'                            the next inode number after a restart
//	'v' device                     root inode and epoch of a device
//	'i' ino:8                      inode: attributes, placement, counters
//	'd' parent:8 cookie:8          directory entry: name, inode, type
//	'l' ino:8 parent:8 cookie:8    a link of an inode besides its primary one
//	'x' ino:8 name                 extended attribute
//	'm' ino:8 offset:8             mapping: one pinned buffer of the content
//	'k' key                        the inode, or the part of one, that has the key
//	't' ino:8 part                 the key of a part of a file
//	'r' receipt                    a text that outlives the record of a removed file
//	'z' ino:8                      removed inode of which records are left
//	'b' ino:8                      binding: how to find memory of another process or session
//	'e' sec:8 nsec:4 ino:8         expiry time of an inode
//	'n' device                     bond: ties the records to a device's memory
//
// # Directory entries and cookies
//
// A cookie has the 63 bits that the kernel preserves of a directory offset:
//
//	bit 63   62                      8  7        0
//	 0    | 55 bits of SipHash(name)   |   slot   |
//
// The hash key is random for each store. Nearly every entry has slot 0 and is found by one
// Get. Names with the same hash use the slots 1 to 255; the entry in slot 0 is then marked
// as chained, and remains as a tombstone if its own name is removed first. So the cookie of
// a name never changes while the name exists, no two entries of a directory share a cookie,
// and a listing that continues after a cookie neither skips nor repeats a name.
//
// # Links
//
// The fields Parent and Name of an inode hold one of its links, the primary one, from which
// paths are built. Only an inode with further links has 'l' records. When the primary link
// is removed, another is promoted.
//
// # Bindings
//
// A file can be bound to memory of another process, or of a session. The inode's Bound records that, and
// only such an inode is written as version 2, so that a program without support for
// bindings refuses it and still reads all others. The 'b' record is plain data to this
// package; it is removed with the inode, or by Unbind. A short binding is in the inode's record
// instead, which then has version 6. A file bound to memory that ends with this
// process has neither; its inode is written as version 5.
//
// # publish/
//
// The directory PublishIno exists in every store of format 2; Open creates it in one of
// format 1. It has no entry in the root, but its record names the root as parent and
// "publish" as name, so that paths read "publish/NAME". It belongs to no device, and the
// files in it keep their own. It contains only regular files with one link, which enter by
// Publish or Put and leave by Rename, MoveDevice or removal. So a file enters and leaves
// only by its name. A file with Taken set was received: its bytes may have moved elsewhere,
// and it can only be removed.
//
// # Expiry
//
// The field Expires of an inode is the time at which it expires, and an 'e' record makes it
// possible to find the inode then: the keys of these records sort by time, with the sign
// bit of the seconds inverted. Nothing is removed automatically; Expired lists the expired
// files, and the caller removes them by name. An inode with Expires or Taken set is written
// as version 3, all others as before.
//
// # Parts
//
// Parts of a file can have keys of their own, by names that are plain data to this package.
// The 't' record has the key of a part and the 'k' record the part, so each is found by the
// other. Both are removed with the inode, which counts them; an inode with such parts is
// written as version 4, and the 'k' record of a part as version 2, so that a program without
// support for parts refuses them.
//
// # Receipts
//
// A removal can note receipts, which say what has become of the file: a program that was not told
// before the process died learns it from the next one. They are texts to this package, and stay
// until Receipts.Drop.
//
// # Invariants
//
//   - Every change of a directory's entries rewrites the directory's inode (size,
//     times), so two such changes always conflict.
//   - The size of a directory is the number of its entries; its link count is 2 plus
//     the number of directories in it.
//   - Inode numbers come from batches. The end of a batch survives the process before any of
//     its numbers is used, so no number is assigned twice, not even after a crash. The next batch is
//     reserved in the background while half of the present one is free.
//   - An 'e' record and the Expires of its inode are written in one transaction, and
//     the record is removed in the same transaction as the inode.
//   - An inode that a transaction creates enters the cache before the commit, so that a
//     change by another operation, which can find it only after the commit, is never
//     overwritten by its initial state.
//   - An inode without links has no records, except mappings and attributes that a 'z'
//     record announces. These are removed right afterwards, held attributes by
//     ReleaseXattrs, and any that are left by the next Open. While attributes are held,
//     the value of the 'z' record is the inode.
//
// # Lock order
//
// Correctness depends on the transactions alone. Locks only prevent operations that would
// conflict, and so be repeated, from running concurrently:
//
//	Store.alloc.mu            (refilling the batch of inode numbers)
//	Store.locks, ascending    (striped by inode number: the directories that
//	                           an operation changes, or the inode of Update)
//	  the KV's own locks
//
// Store.alloc.mu is never held together with a stripe. An inode that is only reached
// through a name is not locked: a conflict there is rare, and the KV repeats the
// transaction.
package metadata
