package transport

import (
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// scanArg is the kernel's struct pm_scan_arg.
type scanArg struct {
	size, flags, start, end, walkEnd   uint64
	vec, vecLen, maxPages              uint64
	inverted, mask, anyOf, returnWhich uint64
}

// scanRegion is the kernel's struct page_region: start, end and categories,
// which nobody reads: that there is one says enough.
type scanRegion [3]uint64

const (
	// pagemapScan is _IOWR('f', 16, struct pm_scan_arg).
	pagemapScan = 3<<30 | unsafe.Sizeof(scanArg{})<<16 | 'f'<<8 | 16
	// pageIsPresent is PAGE_IS_PRESENT.
	pageIsPresent = 1 << 3
)

// scan says whether a page of [start, end), page boundaries both, is not
// mapped.
func (p *pagemap) scan(start, end uint64) (missing bool, err error) {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return false, err
	}
	// On the heap, where nothing moves: the kernel gets its address as a number.
	found := new(scanRegion)
	arg := &scanArg{
		start: start, end: end, vec: uint64(uintptr(unsafe.Pointer(found))), vecLen: 1, maxPages: 1,
		inverted: pageIsPresent, mask: pageIsPresent, returnWhich: pageIsPresent,
	}
	arg.size = uint64(unsafe.Sizeof(*arg))
	var regions uintptr
	var errno unix.Errno
	err = conn.Control(func(fd uintptr) {
		regions, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, pagemapScan, uintptr(unsafe.Pointer(arg)))
	})
	runtime.KeepAlive(found)
	if errno != 0 {
		err = errors.Join(err, errno)
	}
	return regions > 0 || arg.walkEnd != end, err
}

// address returns the address of a mapping.
func address(mem []byte) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
}

// resident says for each page of a mapping, by the lowest bit, whether the
// file has it in memory. Nothing is mapped in.
func resident(mem []byte, pages []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, address(mem), uintptr(len(mem)), uintptr(unsafe.Pointer(unsafe.SliceData(pages))))
	if errno != 0 {
		return errno
	}
	return nil
}
