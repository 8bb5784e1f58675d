package job

import "unsafe"

// address returns the address of bytes in this process, as a number; 0 for none.
func address(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }
