package sim

import "unsafe"

// addressOf returns the address at which memory begins.
func addressOf(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
