// Package shm is the transport between two ranks on one host: each maps the
// memory that the other shares, so that a put or a get is one copy by the
// initiator, and a tag is one store into a ring that both have mapped. The
// processor of the other side takes no part in it.
//
// # Trust
//
// A process that has mapped memory can go on using it: revocation, rights and
// ranges are enforced by this library on the peer's side, not by the kernel.
// Therefore shm is for two processes of one user on one host, each of which could
// read and write all memory of the other anyway, as a debugger does. Both sides
// ask the kernel for the process at the other end of their Unix socket
// (SO_PEERCRED). The listening side also compares the boot ids and, within one
// pid namespace, checks that the process that sent the request is the one at the
// socket, and not a relay.
//
// # What can be opened
//
//	region.Table.Alloc        a sealed memfd: mapped
//	a file of a host tier     its descriptor: pread and pwrite
//	devices.HandleMemfd       (simulated devices) a sealed memfd: mapped
//	devices.HandleIPC, VMM    opened on the device of that UUID, if it is open
//	                          here (Options.Devices)
//	ordinary bytes, others    not: they use the data connections. The kernel could
//	                          copy them between processes, but only by process
//	                          id, which may have been reused by then
//
// A process that accesses a mapping of a truncated file is killed. So only files
// that the kernel protects from truncation (F_SEAL_SHRINK) are mapped; all others
// are read and written by system calls, which then fail. A peer's offer is checked
// before it is opened: kind, file system, seals, length, access.
//
// # Tags
//
//	sender                          receiver
//	slot, head ──── ring ─────────> polls head for 100 µs, then
//	sleeping? eventfd ────────────> sleeps, after setting a flag in the ring
//	waiting? <───────────── eventfd takes the slot, moves tail
//
// There is one ring for each direction, in memory of the receiver. A sender that
// finds it full sleeps likewise. The receiving goroutine does the polling: no
// other goroutine sits between the sender and it. The indices in the ring are
// written by the peer: an impossible one ends the session.
//
// # Lock order
//
// provider.mu, sender.mu and receiver.mu are leaves.
package shm
