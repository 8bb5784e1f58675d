package sim

import "unsafe"

// addressOf returns the start address of p.
func addressOf(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
