package sim

import "unsafe"

// addressOf is where memory begins.
func addressOf(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
