// Package objects is the object store. It binds names and keys to device memory, and
// implements the life cycle, the semantics and the recovery of the files of a mount. It is
// the only package in which metadata and data meet: package metadata keeps the records,
// package objects/content holds the bytes, package transport moves them.
//
// An object is a regular file of the mount: a record, and content in the memory of one
// device. A key is a name of an object that is independent of directories. The main types:
//
//	Store      the object store of one node; Open and Close
//	File       an open object
//	Holder     one user of keys, such as a session, with the memory that it has registered
//	Region     registered memory; a Blob is a range of it
//	Tree, Keys what a mount serves: Local and LocalKeys implement them for a Store, and
//	           package objects/cluster for all nodes
//
// # Parts
//
// Store has the exported methods: its own, which delegate to its parts, and those of the
// parts that it embeds. Each part holds references to the ones it needs, which are all above
// it in this list:
//
//	tiers         the devices: arenas, or the files of the host tier
//	notices       the functions of OnNotice, called for each change
//	table         the inodes in use: references, pins, handles → object
//	attributes    inodes: the records, overlaid with newer values of the objects in use
//	access        permission checks against the records
//	keyIndex      the inodes that carry keys
//	claims        the authority on keys, and the requests to it under way
//	events        the events of keys, for listeners
//	names         removal, replacement and renaming of names
//	changes       the function of OnChange
//	keyed         assigning and removing keys, and their time to live
//	bindings      memory of other processes and of holders as content
//	moves         moves of files between devices
//	publications  names in publish/ and their offers
//	headers       parsed headers of tensor files
//	exports       memory of objects that other processes use
//
// startup compares the records with the devices; it exists only inside Open.
//
// # The life of an object
//
//	Create ──> a record only: no memory, no entry in the table
//	OpenFile ──> pinned: loaded from its record and its buffer mappings
//	  first byte ──> the record is marked with the device's epoch
//	last Close ──> record and mappings are written, the object leaves memory
//	last name removed ──> orphan: stays in the table, with its content, while a
//	                   handle or the kernel refers to it; if the kernel did not
//	                   remove the name, the content is freed with the last handle
//	the process dies ──> lost, unless Options.Keeper has the memory: then the next
//	                   Open has the object as it was, and an orphan that was open
//	                   is one of Orphans until ReleaseUnclaimed
//	device in another epoch ──> lost: keeps its name, reads as ErrLost, and
//	                   becomes live again when it is truncated to 0
//
//	Bind ──> bound: its content is memory of another process, and it stays in
//	                   the table
//	the owner exits ──> lost
//
//	Holder.Bind ──> bound to blobs of a holder's regions, before its record
//	                   exists
//	one of the regions ends ──> a replica takes over, on its own device; without
//	                   one, lost
//	the process dies ──> lost, unless its session may come back: then the next
//	                   Open has it as absent
//	Holder.Continue ──> bound to the blobs of the same numbers again
//	Options.Absent is over ──> lost
//
// # Memory of holders
//
// A holder is what the store keeps for one session. A Region is memory that a holder has
// registered. Content made of blobs refers to regions and owns no memory itself. From the
// moment a region ends, everything made of it reads as ErrLost, or is read from a replica;
// the records follow in the background, under each object's lane. The memory is released
// when the last reader has left.
//
// A replica is content made of another holder's blobs with the same bytes. It is attached to
// the primary content, is read only when the primary can't be, and is dropped by the first
// write through the store. When the last holder drops its part, the object is removed; when
// the last holder ends, the object is lost.
//
// # Sessions that continue
//
// A holder made by NewSession continues in the next run, if Options.Keeper and Options.Absent are
// set (docs/adr/0027). The binding of each of its keys and publications is in the records: its name
// as a hash, and the numbers, offsets and lengths of its blobs. Open makes these objects absent:
// they have their size, and who reads or writes them waits, within its context, until their holder
// has registered the regions again and calls Continue, or until the time is over that AwaitOwners
// begins. All that are not given back then end at once, before any record is written.
//
// The removal of a publication notes receipts for its publisher and its receiver: each of them may
// ask again, in the next run, for a call whose answer it has not had (WithCall), and is told that it
// was carried out (Holder.Received). Receipts are dropped after a minute, when there are too many,
// and at a start to which no session comes back.
//
// # Content
//
// Package objects/content implements the content of objects, and documents its invariants:
// extents of device memory, one tmpfs file for each object of the host tier, or bound memory.
// The kernel may serve a file of the host tier without the daemon (passthrough), so only the
// file itself knows its size and times. Two invariants need this package too:
//
// INVARIANT (export): the exported bytes of an object stay in one place, all of them count
// as written, and changes to them are made in that place. So each side reads what the other
// has stored. An exported allocation contains nothing but its object and zeros.
//
// INVARIANT (crash): before the first byte of an object is stored, its record says which
// epoch the content belongs to. After a crash the object is lost, never empty. If memory
// outlives the process, the entry of the object in it exists before that record is written,
// and has the object's present size and times after every change (object.keepLocked).
//
// # Changes and readers
//
// An object's lane admits one change at a time, and is held while a device moves bytes. It is
// a queue of that object rather than a lock, and waiting for it ends with the context.
// Readers never wait for it.
//
// A read (File.ReadAt) finds the pieces of its range (object.look), whose memory is not freed
// until it releases them, and has transport.Engine copy them. A write (File.CopyIn) enters
// the lane, marks the record before the first byte (object.mark), writes to the content, and
// updates the size and times of the object. The record is saved when the last user leaves.
//
// # Keys
//
// An object that is made for a key is DEVICE/.keys/KEY. Its content is written before its
// record, under an inode number that nothing refers to yet. So a partial object is never
// visible, and a crash in between leaves content that the next start removes.
//
// A key is free if no inode carries it, or if the inode that carries it is lost or has
// expired. An operation that takes a key from a file first decides whether the file may
// lose it; keyed.turn excludes other changes of keys until it is done.
//
// Where there are other nodes, an authority (SetAuthority) is asked before a key, or a name
// in publish/, becomes visible, with no lock held, and is notified together with the event
// that says that the key is no longer visible. claims counts the requests: as long as a call
// is about to use a key, the key is not released.
//
// # Publications
//
// A file in publish/ is offered to one receiver. Its offer decides which one: a state machine
// with a lock of its own (offer.go).
//
// A call that receives claims the offer, copies, and ends the offer in the step that removes
// the name from publish/. A reader claims it with the read that completes its bytes: the
// records mark the file as taken before that read returns, and the name is removed when the
// reader closes the file. A failure in between returns the claim, and the file is offered as
// before.
//
// An offer is in memory with its object and needs no record: one that is not claimed can be
// made anew, one that is taken is marked in the records, and a claim ends with its run. The
// next run removes files that were taken, and those that were memory of a holder of the run
// before, unless it may come back. Where handles outlive a run, their Progress tells the next one
// what they were given, and which of them is the receiver (Reading); files that were taken are removed
// once it is known that no handle is (ReleaseUnclaimed).
//
// Published content does not change: it has no writers when its name is made, and writing,
// truncating, binding and exporting check for an offer under the object's lane.
//
// The offer of a name ends, and its event is emitted, under the stripe of publish/. Its
// publisher is notified afterwards, without any lock.
//
// # Lock order
//
// Locks are taken from the outermost, at the top, to the innermost:
//
//	lane of an object
//	  keyed.turn
//	    names.stripes, lower number first
//	      claims.mu
//	        table shard
//	          object.mu
//	            mu of content.Extents and content.Bound, and below it those of kept memory
//	              mu of a gate of package content
//	                mu of late of package content, those of the arena and of metadata
//
// A goroutine waits for a turn (TakeTurn) with no lock held; if it needs turns on several
// nodes, it takes them in the order of the nodes' names.
//
// It waits for a lane with none of the other locks held, and holds none of the locks below
// the lane while a device moves bytes.
//
// No two locks of content.Bound, or of gates, are held at once: a reader of blobs enters one
// memory after the other. Holder.mu and Region.mu are leaves; the functions that
// a region calls when it ends are called with none of them held.
//
// shared.mu, of the files exported to other processes, is a leaf, and so are turns.mu,
// expiry.mu, events.mu, offer.mu, absences.mu and receipts.mu; and reading.mu, except that a Progress is
// called with it. A change that waits
// for the owner of absent content has the object's lane, so what ends that wait takes no lane
// before it. A wait for a claim of an
// offer holds no lane and none of these locks. Nothing is unpinned with a stripe held: the
// last user of an object saves it, which waits for its lane. Events are emitted with
// keyed.turn or a stripe held, so that the events of one key are in order.
//
// changes.notifying is held for reading, with no other lock, while the function passed to
// OnChange runs. Functions passed to OnNotice run with notices.mu held for reading, and with
// any of these locks, and those of metadata, held: they must not call the store.
//
// memo.mu, of the parsed headers, is a leaf too. A goroutine that reads a header holds a turn
// of headers.turn; under it, it pins and reads an object, and may save it. Saving waits for
// the lane, but never for a lane whose holder waits for a turn: such a holder (File.Still)
// has the object open, so the reader of the header is not its last user.
package objects
