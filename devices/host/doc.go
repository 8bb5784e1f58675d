// Package host implements the device family "host": pinned memory of this machine, kept in
// files that the kernel can serve itself and that outlive the process.
//
// # Location of the bytes
//
// With CAP_SYS_ADMIN (mode tmpfs) the device mounts a private tmpfs at Dir/host. The kernel
// enforces its size, and keeps it out of swap if it supports that. Without the privilege
// (mode quota) the tier is a directory in /dev/shm, or in Dir if that is a tmpfs, and the
// device itself enforces the size. Device.Mode and Device.Why report the mode and the
// reason.
//
//	Dir/host/  or  /dev/shm/hmcfs-UID-HASH/
//	  epoch -> 1785…      a symlink, which takes no memory of the tier
//	  number-…            a number, stored as the file's time; takes none either
//	  aside/00000000000003f1
//	  files/00000000000003f2
//
// Both survive kill -9 of the process, and the next Open adopts them with their files,
// which keep their epoch. Allocations are unlinked files and end with the process: records
// of them must not be trusted afterwards, whatever the epoch says. The blocks of new memory
// are allocated before it is mapped, so that a full tier is an error of Alloc and never a
// SIGBUS.
//
// # The quota
//
// Allocations are counted exactly. Files are counted by their blocks, plus the bytes
// reserved since the last count, and are recounted when the sum approaches the limit. Two
// cases are not covered: files that are removed but still open, and reservations that are
// not yet written when a count happens.
//
// # Lock order
//
// Device.life, then Device.blocksMu, then the quota's lock. Device.life is held for reading
// by every operation that uses the tier's directories or allocates memory, and for writing
// by Close; bytes are moved with no lock held.
package host
