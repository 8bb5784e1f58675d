// Package owner knows the processes whose memory objects are bound to: who
// they are, whose they are, what their descriptors name, and when they end.
//
// # Who may have what
//
// The daemon may be root and acts for a user, so it opens nothing that the
// user could not have opened: a descriptor only of a process that is the
// user's in every of its ids, and only as that process has it open; a path
// only if it leads to the user's own file. What is behind a name is looked at
// before it is opened, since opening a FIFO or a device is an act by itself.
//
// A process is named by its number, the time of its start and the machine's
// boot: numbers alone are used again.
//
// # Lock order
//
// Watcher.mu is a leaf. No callback runs with it held.
package owner
