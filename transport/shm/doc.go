// Package shm is the transport of two ranks on one host: each maps the memory
// that the other shares, so that a put or a get is one copy by whoever asks for
// it, and a tag one store into a ring that both have mapped. The processor of
// the other side has no part in it.
//
// # Trust
//
// Whoever has mapped memory can go on to use it: a key that is revoked, rights
// and ranges are kept by this library on the peer's side, not by the kernel.
// Therefore shm is for two processes of one user on one host, each of which
// could read and write all memory of the other anyway, as a debugger does. Both
// sides ask the kernel who is at the other end of their Unix socket
// (SO_PEERCRED); the side that listens compares the boot ids too, and within
// one pid namespace that the process that it was asked by is the one at the
// socket, and no relay.
//
// # What can be opened
//
//	region.Table.Alloc        a sealed memfd: mapped
//	a file of a host tier     its descriptor: pread and pwrite
//	devices.HandleMemfd       (simulated devices) a sealed memfd: mapped
//	devices.HandleIPC, VMM    opened on the device of that UUID, if it is open
//	                          here (Options.Devices)
//	ordinary bytes, others    not: they go by the data connections. The kernel
//	                          could copy them between processes, but by the
//	                          number of a process, which may be another's by then
//
// A mapping of a file that somebody cuts ends the process that touches it. So
// only files are mapped that the kernel lets nobody cut (F_SEAL_SHRINK); all
// others are read and written by calls, which fail then. What a peer offers is
// checked before it is opened: kind, file system, seals, length, access.
//
// # Tags
//
//	sender                          receiver
//	slot, head ──── ring ─────────> polls head for 100 µs, then
//	sleeping? eventfd ────────────> sleeps, having said so in the ring
//	waiting? <───────────── eventfd takes the slot, moves tail
//
// There is one ring for each direction, in memory of whoever receives. A sender
// that finds it full sleeps likewise. Whoever receives polls by itself: no other
// goroutine stands between the sender and it. The numbers in the ring are the
// peer's: one that can't be ends the session.
//
// # Lock order
//
// provider.mu, sender.mu and receiver.mu are leaves.
package shm
