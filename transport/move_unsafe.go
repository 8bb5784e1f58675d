package transport

import "unsafe"

// startsInside reports whether dst begins inside src, after its start, so that a
// copy from the front would overwrite bytes before it has read them.
func startsInside(dst, src []byte) bool {
	d := uintptr(unsafe.Pointer(unsafe.SliceData(dst)))
	s := uintptr(unsafe.Pointer(unsafe.SliceData(src)))
	return d > s && d-s < uintptr(len(src))
}
