package elem

import "unsafe"

// cast takes bytes for elements. They are aligned to one, and a multiple of it.
func cast[T any](p []byte) []T {
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))/unsafe.Sizeof(one))
}
