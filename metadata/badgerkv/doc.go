// Package badgerkv implements metadata.KV with Badger, in a directory.
//
// When Update returns, the commit is in the journal or, without one, in the page cache: it survives
// the end of the process, even by kill -9, but not a crash of the machine. That is sufficient, because the device
// memory that the records describe does not survive such a crash either.
//
// # Commits
//
// Transactions are this package's own; Badger stores what they have committed
// (docs/adr/0023). A commit adds its changes to the active layer in memory, where later
// transactions see them. A timer has the layer written to Badger. Without a journal Update waits for
// that, which is done for all waiting commits at once; UpdateSoon does not.
// A transaction reads its own changes, then the layers up to its version, then a read
// transaction of Badger that all share until the next layer is written. It conflicts with the
// commits since it began that have changed a key which it has read. A filter tells which keys Badger
// does not have: they are not looked for, and not removed.
//
// The journal is a mapped file outside of the directory which has the layers, too (docs/adr/0027, 0028).
// Open makes its commits again before it returns; if that fails, Open does, and the next one
// repeats all of it. What can't be used of a journal is dropped, and logged. If the file is removed or replaced meanwhile, the first
// change of the next layer makes it anew (journalfile.go).
//
// Badger is configured for low memory use: small tables, a small block cache, no
// compression, and all values in the tables, so that its value log stays empty and needs no
// garbage collection.
//
// # Damage
//
// Records are either complete or refused (docs/adr/0014): Open reads the whole directory
// before it opens anything for writing. Badger numbers commits and writes tables in that
// order, so the versions in the tables, those in the logs and the highest acknowledged
// version, which is kept in witness files, must join without a gap.
//
// # Space
//
// Blocks are allocated for every file that Badger maps before Badger stores into it
// (docs/adr/0013). The log that follows the current one is created in advance. Tables wait
// until the directory has room for their names before they are created, and for disk space
// when they are mapped. A commit is refused while it might need a log that does not exist
// yet. So a full disk is an error of a commit, and never a SIGBUS.
//
// # Lock order
//
// KV.flushing precedes KV.mu. flushing is held while a layer is written, mu only for changes
// of layers in memory. space.mu and spares.mu are leaves, and are not acquired with mu held. A
// compaction holds spares.mu for as long as the disk has no room for another file, during which a
// layer is not written. Badger holds its own
// locks only inside its calls. While the directory is open it is locked against other
// processes.
package badgerkv
