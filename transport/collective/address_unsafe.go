package collective

import "unsafe"

// address returns the address of the first byte of p.
func address(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }
