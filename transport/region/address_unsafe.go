package region

import "unsafe"

// Address returns the address of the first byte. It is a number for comparison,
// and keeps nothing alive.
func Address(p []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p))))
}
