package badgerkv

import (
	"sync/atomic"
	"unsafe"
)

// wordAt returns the number at a place of a map that is aligned to 8 bytes.
func wordAt(page []byte, at int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&page[at]))
}
