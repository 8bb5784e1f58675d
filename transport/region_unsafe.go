package transport

import "unsafe"

// address is where a mapping begins.
func address(mem []byte) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
}
