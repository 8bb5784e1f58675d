package badgerkv

import (
	"sync/atomic"
	"unsafe"
)

// wordAt returns the number at an 8-byte-aligned offset of a mapped page.
func wordAt(page []byte, at int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&page[at]))
}
