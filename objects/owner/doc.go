// Package owner tracks the processes whose memory objects are bound to: their identity, the
// users they belong to, the files behind their descriptors, and when they exit.
//
// # Access rules
//
// The daemon may run as root and acts for a user, so it opens nothing that the user could not
// have opened: a descriptor only of a process all of whose ids are the user's, and only with
// the access that this process has it open with; a path only if it leads to the user's own
// file. The file behind a name is inspected before it is opened, since opening a FIFO or a
// device has side effects.
//
// # File systems that do not answer
//
// Any user can mount a FUSE file system whose server never answers. Almost every call on a
// descriptor of it waits for that server: fstat, statfs, open, and close, which not even
// SIGKILL interrupts. So this process holds none of them. Descriptors that are received, taken
// or opened go through a Guard, whose process waits in place of this one and passes on only
// files that the kernel itself answers for; questions about a descriptor in this process are
// put to the kernel alone (AT_STATX_DONT_SYNC, F_GET_SEALS, RESOLVE_CACHED). The number of
// requests that a user has in the guard is bounded, including those whose descriptors have
// still to be closed.
//
// A process is identified by its number, its start time and the machine's boot, since numbers
// are reused.
//
// # Lock order
//
// Watcher.mu and Guard.mu are leaves. No callback runs with one of them held. The guard's
// process is started and written to under Guard.mu.
package owner
