// Package badgerkv is a metadata.KV kept in a directory by Badger.
//
// A commit is in the page cache when Update returns: it outlives the process,
// kill -9 included, but not the machine. That is all that is asked for, since
// the device memory that the records describe does not outlive it either.
//
// Badger is set up for little memory: small tables, a small block cache, no
// compression, and all values in the tables, so that its value log stays
// empty and needs no collection.
//
// # Damage
//
// Records are whole or refused (docs/adr/0014): Open reads all of the directory before
// it opens anything for writing. Badger numbers commits and writes tables in that order,
// so the tables, the logs and the highest version that was acknowledged, which witnesses
// hold, have to meet without a hole.
//
// # Space
//
// What Badger maps and stores to has its blocks before (docs/adr/0013): the log that
// follows the present one is made ahead, tables wait for room for their names before they
// are made and for space when they are mapped,
// and a commit is refused while it could need a log that is not there. So a full disk
// is an error of a commit, and never a SIGBUS.
//
// # Lock order
//
// Two locks of its own, space.mu and spares.mu, which are leaves; spares.mu is held by a
// compaction as long as the disk has no room for another file. Badger has its own, which
// are held inside its calls only.
// The directory is locked against other processes as long as it is open.
package badgerkv
