package elem

import "unsafe"

// cast reinterprets bytes as elements. p must be aligned to T and a multiple of its size.
func cast[T any](p []byte) []T {
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))/unsafe.Sizeof(one))
}
