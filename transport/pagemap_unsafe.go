package transport

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/internal/descriptor"
)

// scanArg is the kernel's struct pm_scan_arg.
type scanArg struct {
	size, flags, start, end, walkEnd   uint64
	vec, vecLen, maxPages              uint64
	inverted, mask, anyOf, returnWhich uint64
}

// scanRegion is the kernel's struct page_region: start, end and categories. Its
// contents are not read: only whether there is one matters.
type scanRegion [3]uint64

const (
	// pagemapScan is _IOWR('f', 16, struct pm_scan_arg).
	pagemapScan = 3<<30 | unsafe.Sizeof(scanArg{})<<16 | 'f'<<8 | 16
	// pageIsPresent is PAGE_IS_PRESENT.
	pageIsPresent = 1 << 3
)

// scan reports whether a page of [start, end), both page boundaries, is not
// mapped.
func (p *pagemap) scan(start, end uint64) (missing bool, err error) {
	// On the heap, where nothing moves: the kernel receives its address as a
	// number.
	found := new(scanRegion)
	arg := &scanArg{
		start: start, end: end, vec: uint64(uintptr(unsafe.Pointer(found))), vecLen: 1, maxPages: 1,
		inverted: pageIsPresent, mask: pageIsPresent, returnWhich: pageIsPresent,
	}
	arg.size = uint64(unsafe.Sizeof(*arg))
	var regions uintptr
	err = descriptor.Use(p.file, func(fd int) error {
		var errno unix.Errno
		regions, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), pagemapScan, uintptr(unsafe.Pointer(arg)))
		if errno != 0 {
			return errno
		}
		return nil
	})
	runtime.KeepAlive(found)
	return regions > 0 || arg.walkEnd != end, err
}

// address returns the address of a mapping.
func address(mem []byte) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
}

// resident sets the lowest bit of each page's entry if the file has the page in
// memory. Nothing is mapped in.
func resident(mem []byte, pages []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, address(mem), uintptr(len(mem)), uintptr(unsafe.Pointer(unsafe.SliceData(pages))))
	if errno != 0 {
		return errno
	}
	return nil
}
