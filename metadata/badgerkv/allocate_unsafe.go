package badgerkv

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Badger gives a new file its size and stores into a shared map of it. On a full disk such
// a store raises SIGBUS, which no Go program survives; and if creating a table fails during
// a compaction, the error is lost together with the table. So blocks are allocated when a
// file is mapped, and the mapping call waits until they are available. x/sys maps through
// one function value, which is the only place between Badger's two steps that can be
// intercepted; docs/adr/0013 lists the alternatives that were tried.

// mapFunc maps a file; the arguments are mmap(2)'s.
type mapFunc func(addr, length uintptr, prot, flags, fd int, offset int64) (uintptr, error)

// mmapper has the layout of the type of that name in x/sys/unix.
type mmapper struct {
	sync.Mutex

	_    map[*byte][]byte
	mmap mapFunc
	_    func(addr uintptr, length uintptr) error
}

//go:linkname mapper golang.org/x/sys/unix.mapper
var mapper *mmapper //nolint:gochecknoglobals // x/sys does not export its mapper

// allocateMaps makes maps allocate blocks from now on. It may be called repeatedly.
func allocateMaps() {
	allocating := mapFunc(allocatingMap)
	own := *(*unsafe.Pointer)(unsafe.Pointer(&allocating))
	at := (*unsafe.Pointer)(unsafe.Pointer(&mapper.mmap))
	if atomic.LoadPointer(at) != own {
		atomic.StorePointer(at, own)
	}
}

// allocatingMap maps a file as mmap(2) does. For a shared writable map of a Badger file it
// allocates the file's blocks first.
func allocatingMap(addr, length uintptr, prot, flags, fd int, offset int64) (uintptr, error) {
	if prot&unix.PROT_WRITE != 0 && flags&unix.MAP_SHARED != 0 && fd >= 0 {
		allocate(fd, offset+int64(length))
	}
	at, _, errno := unix.Syscall6(unix.SYS_MMAP, addr, length, uintptr(prot), uintptr(flags), uintptr(fd), uintptr(offset))
	if errno != 0 {
		return 0, errno
	}
	return at, nil
}

// allocate allocates the blocks of the first bytes of a new Badger file, and waits until
// they are available. Other files, and files that have blocks already, are left unchanged.
func allocate(fd int, length int64) {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return
	}
	switch name := filepath.Base(path); {
	case filepath.Ext(name) == logSuffix:
		length = min(length, logRoom)
	case filepath.Ext(name) != ".sst" && filepath.Ext(name) != ".vlog" && name != "DISCARD":
		return
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Blocks != 0 {
		return
	}
	for {
		if _, err := fallocate(fd, 0, length); err == nil {
			return
		}
		time.Sleep(allocationPause)
	}
}
