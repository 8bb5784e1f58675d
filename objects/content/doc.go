// Package content holds the bytes of objects: it knows ranges of memory, not names,
// records or sizes. Package objects decides what an object is and when it changes.
//
//	Content    the interface; four types implement it
//	  Extents    device memory: leases of the device's arena, by offset
//	  HostFile   one tmpfs file per object on the host tier
//	  Bound      memory that another process owns, or that a session has registered
//	  Lost       memory that is gone
//	Tier       one device, as the store uses it: an arena, or a folder of host files
//	Walk       passes the pieces of a range, in steps, to a function that copies them
//
// # Reading
//
// Find returns the pieces of a range, in order and without gaps, and a function that
// releases them. Until it is called the memory of the pieces stays allocated and holds
// what was there, whatever happens to the object meanwhile. Readers take no lock of the
// object.
//
// # Changing
//
// All methods but Find and Usage change the content, one at a time: the caller holds the
// object's lane (see package objects).
//
// # Kinds
//
// The kernel may serve a HostFile by itself (passthrough), so the file alone knows its
// size and times. A Bound file is read and written but never mapped, since its owner can
// truncate it; a Bound content has a fixed length, and nothing of it is freed or cleared.
//
// INVARIANT (old bytes): an extent counts how many of its first bytes were written. The
// rest is never read from the device, so memory need not be zeroed before it is handed
// out, and another object's bytes are never seen.
//
// INVARIANT (no use after free): memory that a change frees goes back to the arena only
// after every reader that may have found it has left the content's gate.
//
// # Memory that outlives the process
//
// A tier made by NewKeptTier keeps, for the process that follows, the slabs of its arena and
// a table of objects (kept.go). A page's label names an entry of the table, the entry names
// the inode, and has the size and times of the object, which may be newer than its record:
//
//	record (metadata)        entry of the table       labels of the pages
//	as of the last save  <─  ino, dirty, facts    <─  entry, offset, bytes that are data
//
// Labels and entries are the truth about an object that is dirty, and the record about all
// others. There is no log: each change is a few stores, in an order in which every prefix is
// a state that the object may have (INVARIANT kept, see keeping). So nothing grows, and
// nothing is replayed. The next process calls Survivors, decides with the records which of
// them are still objects, and calls Revive.
//
// Content is loaded from a record only if the labels of all its pages say the same. Memory
// without labels (an allocation that was exported, or a slab that could not be kept) and
// bytes that a failed copy left unknown mark the entry: after a kill the object is lost.
//
// If anything is missing or belongs to other records or another device, the
// device begins a new epoch and all of it is dropped. What another version of hmcfs has written is refused, and stays.
//
// # Lock order
//
//	Extents.mu, Bound.mu
//	  gate.mu
//	    late.mu, and the locks of the arena
//	  keeping.mu
//	    keptTable.mu
//	keptTier.mu, while a table is made
//
// No two Bound.mu and no two gate.mu are held at once: a reader of parts enters one
// memory after the other. None of these locks is held while a device moves bytes.
package content
