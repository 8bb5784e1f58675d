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

// Badger gives a new file its size and stores into a shared map of it. Where a
// disk is full, such a store is a SIGBUS, which no Go program survives, and a
// failure to make a table is lost in a compaction, with the table. So a file gets
// its blocks when it is mapped, and the map waits until there are some. x/sys maps
// through one function value, and that is the one place between the two steps of
// Badger where there is anything to take hold of; docs/adr/0013 has the others that
// were tried.

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
var mapper *mmapper //nolint:gochecknoglobals // it is that of x/sys, which has no other way to it

// allocateMaps has maps allocate from now on. It may be called any number of times.
func allocateMaps() {
	allocating := mapFunc(allocatingMap)
	own := *(*unsafe.Pointer)(unsafe.Pointer(&allocating))
	at := (*unsafe.Pointer)(unsafe.Pointer(&mapper.mmap))
	if atomic.LoadPointer(at) != own {
		atomic.StorePointer(at, own)
	}
}

// allocatingMap maps as the system does. A file of Badger's that is to be written
// has its blocks first.
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

// allocationPause is between two tries to get space for a file.
const allocationPause = 50 * time.Millisecond

// allocate gives a new file of Badger's the blocks of its first bytes, and waits
// for them. Files of others, and those that have blocks, stay as they are.
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
	for fallocate(fd, 0, length) != nil {
		time.Sleep(allocationPause)
	}
}
