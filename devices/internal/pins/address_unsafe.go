package pins

import "unsafe"

// begin returns the address of p, and end the address after its last byte.
func begin(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
func end(p []byte) uintptr   { return begin(p) + uintptr(len(p)) }
