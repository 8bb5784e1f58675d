package collective

import "unsafe"

// address is where bytes begin.
func address(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }
