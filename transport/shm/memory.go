package shm

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/descriptor"
)

// maxMapped is the maximum size of one mapping, in bytes.
const maxMapped = 1 << 46

// received holds the kernel's facts about a descriptor of the peer.
type received struct {
	size   uint64
	blocks uint64
	sealed bool
	// writable means that it is open for writing, readable for reading.
	writable, readable bool
}

// inspect examines a file of the peer. Only files in memory are accepted: others
// could block their readers.
func inspect(f *os.File) (r received, err error) {
	var st unix.Stat_t
	var fs unix.Statfs_t
	var seals, flags int
	err = descriptor.Use(f, func(fd int) error {
		var failure error
		flags, failure = unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		// A file that can't have seals has none.
		seals, _ = unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
		return errors.Join(unix.Fstat(fd, &st), unix.Fstatfs(fd, &fs), failure)
	})
	if err != nil {
		return received{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || fs.Type != unix.TMPFS_MAGIC || st.Size < 0 || flags&unix.O_PATH != 0 {
		return received{}, errors.New("the descriptor is not a file in memory (tmpfs)")
	}
	mode := flags & unix.O_ACCMODE
	return received{
		size: uint64(st.Size), blocks: uint64(st.Blocks), sealed: seals&unix.F_SEAL_SHRINK != 0,
		writable: mode == unix.O_RDWR || mode == unix.O_WRONLY, readable: mode == unix.O_RDWR || mode == unix.O_RDONLY,
	}, nil
}

// has checks that the file contains n bytes from off.
func (r *received) has(off uint64, n devices.Size) error {
	if !(devices.Range{Off: devices.Offset(off), Len: n}).Within(devices.Size(r.size)) {
		return fmt.Errorf("%d bytes from %d exceed a file of %d bytes: %w", uint64(n), off, r.size, devices.ErrRange)
	}
	return nil
}

// mapping is a part of a file, which may start at any offset.
type mapping struct {
	pages []byte
	bytes []byte
}

// mapFile maps n bytes from off of a file that can't be truncated. If all of the
// file is allocated, its pages are entered into our page table at once, so that
// accesses cause no faults; an offer of unallocated memory allocates none.
func mapFile(f *os.File, off uint64, n devices.Size, write bool) (m mapping, err error) {
	r, err := inspect(f)
	if err != nil {
		return mapping{}, err
	}
	if err = r.has(off, n); err != nil {
		return mapping{}, err
	}
	switch {
	case !r.sealed:
		return mapping{}, errors.New("the memory is not sealed, so it can be truncated")
	case n == 0 || n > maxMapped || !r.readable || write && !r.writable:
		return mapping{}, fmt.Errorf("%d bytes of memory can't be mapped, wrong size or not open for this access: %w", uint64(n), devices.ErrRange)
	}
	prot, flags := unix.PROT_READ, unix.MAP_SHARED
	if write {
		prot |= unix.PROT_WRITE
	}
	if r.blocks*512 >= r.size {
		flags |= unix.MAP_POPULATE
	}
	page := uint64(os.Getpagesize())
	before := off % page
	err = descriptor.Use(f, func(fd int) (err error) {
		m.pages, err = unix.Mmap(fd, int64(off-before), int(before+uint64(n)), prot, flags)
		return err
	})
	if err != nil {
		return mapping{}, fmt.Errorf("map %v of the peer: %w", n, err)
	}
	m.bytes = m.pages[before : before+uint64(n) : before+uint64(n)]
	return m, nil
}

func (m *mapping) unmap() error { return unix.Munmap(m.pages) }
