// Package host is the device family "host": pinned memory of this machine,
// kept in files that the kernel can serve by itself and that outlive the
// process.
//
// # Where the bytes are
//
// With CAP_SYS_ADMIN (mode tmpfs) the device mounts a private tmpfs at
// Dir/host. The kernel enforces its size, and keeps it out of swap where it
// knows how to. Without the privilege (mode quota) it is a directory in
// /dev/shm, or in Dir where that is a tmpfs, and the device enforces the size
// by itself. Device.Mode and Device.Why tell which one, and the reason.
//
//	Dir/host/  or  /dev/shm/hmcfs-UID-HASH/
//	  epoch -> 1785…      a symlink, which takes no memory of the tier
//	  number-…            its time is the number, which takes none either
//	  aside/00000000000003f1
//	  files/00000000000003f2
//
// Both survive kill -9 of the process, and the next Open adopts them with
// their files, which keep their epoch. Allocations are unlinked files, and
// die with the process: their records must not be trusted after it, whatever
// the epoch says. Fresh memory has its blocks before it is mapped, so that a
// full tier is an error of Alloc and never a SIGBUS.
//
// # The quota
//
// Allocations are counted exactly. Files are counted by their blocks,
// together with what was reserved since the last count, and are counted again
// when the sum comes near the limit. Two things escape: files that are
// removed and still open, and reservations that are not yet written when a
// count happens.
//
// # Lock order
//
// Device.mu, then Device.blocksMu, then the quota's lock. Device.mu is held
// shared by whoever uses the tier's directories or takes memory, and
// exclusively to close; bytes move with no lock held.
package host
