// Package hostmem contains the code shared by devices that consist of host memory: blocks
// of mapped memory that outlive their last user, and copies between them.
//
// A [Block] is mapped memory with users. Ending it makes new users fail, and the memory is
// unmapped when the last current user has left. So a device can lose or free memory while
// copies are in flight, and none of them faults.
//
// # Lock order
//
// A block's lock is a leaf, held for a few instructions. Bytes are moved with no lock held.
package hostmem
