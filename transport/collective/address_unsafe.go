package collective

import "unsafe"

// address returns the address at which bytes begin.
func address(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }
