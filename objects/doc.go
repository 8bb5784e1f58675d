// Package objects is the object store: it binds names and keys to device
// memory, and owns life cycle, semantics and recovery. It is the only place
// where metadata and data meet.
//
// # Parts
//
// Store has the exported methods; what it does is done by its parts, each of which
// holds what it needs and knows those above it in this list alone:
//
//	tiers         the devices: arenas, or files of the host tier
//	notices       who is told of each change
//	table         the inodes in use: references, pins, handles → object
//	attributes    inodes: records, with what the objects in use know beyond them
//	access        permissions by the records
//	keyIndex      the inodes that carry keys
//	claims        the authority on keys, and what it is being asked
//	events        what happens to keys, for listeners
//	names         removal, replacement and renaming of names
//	changes       the function of OnChange
//	keyed         giving and taking keys, and their time to live
//	bindings      memory of other processes and of holders as content
//	moves         files that change their device
//	publications  names in publish/ and their offers
//	headers       what is known of files of tensors
//	exports       memory of objects in other processes
//
// startup compares records and devices inside Open and is not kept.
//
// # The life of an object
//
//	Create ──> record only: no memory, no entry in the table
//	OpenFile ──> pinned: loaded from its record and its buffer mappings
//	  first byte ──> the record is marked with the device's epoch
//	last Close ──> record and mappings are written, the object leaves memory
//	last name gone ──> orphan: lives on in the table, with its content, while a
//	                   handle or the kernel refers to it; content whose name
//	                   the kernel did not remove goes with the last handle
//	device in another epoch ──> lost: keeps its name, reads as ErrLost, and
//	                   lives again when it is cut to nothing
//
//	Bind ──> bound: its content is memory of another process, and it stays in
//	                   the table
//	the owner ends ──> lost
//
//	Holder.Bind ──> bound to blobs of a holder's regions, from before its
//	                   record is there
//	a region of it ends ──> a replica takes over, on its device; else lost
//	the next run ──> lost
//
// # Memory of holders
//
// A Region is memory that a holder has registered; a content of blobs refers to
// it and holds nothing itself. So all that is made of a region reads as ErrLost
// from the moment on in which it ends, or as a replica; records follow in the
// background, under each object's lane. The memory is let go when the last
// reader has left.
//
// A replica is content of another holder's blobs with the same bytes. It hangs
// at the first one, is read only while that can't be, and goes with the first
// write through the store. With the last holder who lets an object go it is
// removed; with the last one who ends it is lost.
//
// # Content
//
// In device memory, content is extents: stretches of pages leased from the
// device's arena. On the host tier it is one tmpfs file for each object, which
// the kernel may serve by itself, so the file alone knows size and times.
//
// What is bound is neither: files of other processes, read and written but
// never mapped, since their owners can cut them, or memory that a device has
// opened. Nothing of it is ever freed or cleared, and its length is fixed.
//
// INVARIANT (old bytes): an extent counts how many of its first bytes were
// written. The rest is never read from the device, so memory need not be
// zeroed before it is handed out, and another object's bytes are never seen.
//
// INVARIANT (no use after free): what a change frees goes back to the arena
// only after every reader that may have found it has left the object's gate.
//
// INVARIANT (export): the exported bytes of an object stay in one place, all of
// them count as written, and changes of them happen in that place. So what one
// side stores the other reads, whichever it is. An allocation that is exported
// holds nothing but its object and zeros.
//
// INVARIANT (crash): the record of an object says which epoch its content is
// of before the first byte is there. A death makes it lost, never empty.
//
// # Changes and readers
//
// An object's lane admits one change at a time, and is held while a device
// moves bytes; it is a queue of that object rather than a lock, and waiting
// for it ends with the context. Readers never wait for it.
//
// # Keys
//
// An object that is made for a key is DEVICE/.keys/KEY. Its content is there
// before its record is, under a number that nobody knows; so nobody sees half
// an object, and a death in between leaves content that the next sweep removes.
//
// A key is free when nothing has it, or when what has it is lost or has
// expired. Who takes a key from a file has judged it before, and nobody gives
// or takes keys in between (keyed.turn).
//
// Where there are other machines, an authority (SetAuthority) is asked before a
// key, or a name in publish/, becomes visible, with no lock held, and told with
// the event of its end when it is not any more. claims counts who asks: as long
// as somebody is about to use a key nobody gives it up.
//
// # Publications
//
// A file in publish/ is offered to one receiver. Who that is its offer decides,
// a state machine with a lock of its own (offer.go):
//
//	offered ──> claimed by one ──> taken by a reader ──> gone
//	   ^              │                                   ^
//	   └──────────────┴───────────────────────────────────┘
//
// A call that receives claims the offer, copies, and ends it in the step that
// takes the name from publish/. A reader claims it with the read that makes its
// bytes complete: the records say that it is taken before it is given them, and
// the name goes when it closes the file. What fails in between gives the offer
// back, as it was.
//
// An offer is in memory with its object and needs no record: one that nobody
// has claimed is as good as new, one that is taken is marked in the records,
// and a claim dies with its run. The next run removes what is taken, and what
// was memory of a user of the run before.
//
// Nobody changes what is published: it has no writers when its name comes, and
// writing, cutting, binding and exporting ask under the object's lane.
//
// The offer of a name ends, and its event is emitted, under the stripe of
// publish/. Its publisher is told afterwards, without any lock.
//
// # Lock order
//
// A turn (TakeTurn) is waited for with no lock held; where one is needed at several
// nodes, in the order of their names.
//
//	lane of an object
//	  keyed.turn
//	    names.stripes, lower number first
//	      claims.mu
//	        table shard
//	          object.mu
//	            extents.mu, bound.mu
//	              gate.mu
//	                late.mu, the arena's and the metadata's own
//
// No two bound.mu, or gate.mu, are held at once: a reader of blobs enters one
// memory after the other. Holder.mu, Region.mu and holders.mu are leaves; what
// a region tells when it ends is told with none of them held.
//
// shared.mu, of the files that other processes were given, is a leaf, and so
// are turns.mu, expiry.mu, events.mu, offer.mu, reading.mu and
// Publication.mu. Nobody waits for a claim of an offer with a lane, or any of
// these locks, held. With a stripe held nothing is unpinned: the last user of an
// object saves it, which waits for its lane. Events are emitted with keyed.turn or a
// stripe held, so that those of one key come in order.
//
// changes.notifying is held for reading, with no other lock, while a function
// given to OnChange runs. Functions given to OnNotice run with any of these
// locks, and the metadata's, held, and with notices.mu for reading: they call
// nothing of the store's.
//
// memo.mu, of what is known of headers, is a leaf too. Who reads a header has
// a turn of headers.turn; under it an object is pinned and read, and may be
// saved, but never while somebody else has its lane and waits for a turn:
// who does that (File.Still) has it open, so that the other is not the last.
//
// Nobody waits for a lane with any of these held, and none of the locks below
// the lane is held while a device moves bytes.
package objects
