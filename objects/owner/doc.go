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
// # File systems that do not answer
//
// Any user can mount a FUSE file system whose server never answers. Almost
// every call on a descriptor of it waits for that server: fstat, statfs, open,
// and close, which not even SIGKILL interrupts. So this process has none of
// them. What is received, taken or opened goes through a Guard, whose process
// waits in place of this one and lets nothing through but what the kernel
// answers for by itself; what is asked of a descriptor here is asked of the
// kernel alone (AT_STATX_DONT_SYNC, F_GET_SEALS, RESOLVE_CACHED). A user has a bounded number
// of requests in the guard, those included whose descriptors are still to be
// closed.
//
// A process is named by its number, the time of its start and the machine's
// boot: numbers alone are used again.
//
// # Lock order
//
// Watcher.mu and Guard.mu are leaves. No callback runs with one held. The
// guard's process is started and written to under Guard.mu.
package owner
