package job

import "unsafe"

// address returns the address of p in this process, as a number; 0 for nil.
func address(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }
