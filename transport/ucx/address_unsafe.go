package ucx

import "unsafe"

// address is where p begins.
func address(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }
