// Package hostmem is what the devices made of host memory share: blocks of
// mapped memory that outlive their last user, and copies between them.
//
// A [Block] is mapped memory with users. Ending it makes new users fail and
// unmaps the memory when the last present one has left, so that a device can
// lose or free memory while copies are under way, and nobody faults.
//
// # Lock order
//
// A block's lock is a leaf, held for a few instructions. Bytes move with no
// lock held.
package hostmem
