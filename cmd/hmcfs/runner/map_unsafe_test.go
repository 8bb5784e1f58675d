package runner

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAt maps a file at exactly an address, or fails.
func mapAt(at uintptr, n int, f *os.File) ([]byte, error) {
	p, err := unix.MmapPtr(int(f.Fd()), 0, *(*unsafe.Pointer)(unsafe.Pointer(&at)), uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED_NOREPLACE)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), n), nil
}
