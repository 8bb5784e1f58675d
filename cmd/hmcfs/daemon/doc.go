// Package daemon joins the layers to a mount and takes them apart again.
//
// # The life of a daemon
//
//	directories, locks ──> what a dead daemon left ──> devices ──> records
//	  ──> engine ──> store ──> other nodes ──> mount ──> admin socket ──> ready
//
//	ready ──> unmounted (by the admin socket, a signal, or umount(8))
//	  ──> sessions ──> other nodes ──> store ──> engine ──> records ──> devices ──> directories, locks
//
// Each step of the way up pushes its undoing; a failure runs them in reverse,
// so that nothing stays mounted, locked or listening.
//
// A session of the admin socket is a client of package local, made for the user
// at the other end. All of them end before the store closes: a mount that is
// unmounted has let its clients go first, and one that is busy keeps them.
//
// # Other nodes
//
// A mount among others is told apart from all others of its name by an ID that
// its state directory keeps, with its last epoch. It is a member, and refused if
// another one has the name, before anything is mounted; it serves its store to
// the others from then on, and has left them before the store closes.
//
// # Lock order
//
// There is no lock: what is built is written before the mount is ready and
// only read after, and wishes to unmount reach Run by a channel.
package daemon
