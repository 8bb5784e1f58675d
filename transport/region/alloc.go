package region

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/internal/descriptor"
)

// seals keep a peer that has the memory open from changing its length: a process
// that accesses a mapping beyond the end of its file is killed.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Alloc allocates n bytes of page-aligned host memory, filled with zeros and
// locked as far as the limit allows, and registers them. The memory itself can be
// passed to a process on the same host: see Source.
func (t *Table) Alloc(n devices.Size) (*Buffer, error) {
	if n == 0 || n > 1<<46 {
		return nil, fmt.Errorf("register %d bytes of new memory: %w", uint64(n), devices.ErrRange)
	}
	mem, file, err := allocate(int(n))
	if err != nil {
		return nil, fmt.Errorf("map %v of memory for registration: %w", n, err)
	}
	// Memory that may be swapped works, but is slower.
	_ = unix.Mlock(mem)
	fresh := &registration{file: file, release: func() error {
		err := unix.Munmap(mem)
		if file != nil {
			err = errors.Join(err, file.Close())
		}
		return err
	}}
	return t.insert(space{}, Address(mem), n, &Buffer{host: mem}, fresh), nil
}

// allocate maps n bytes of a memfd, or without memfd support private memory of
// this process.
func allocate(n int) (mem []byte, file *os.File, err error) {
	fd, err := unix.MemfdCreate("hmcfs-region", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		mem, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
		return mem, nil, err
	}
	file = os.NewFile(uintptr(fd), "memfd:hmcfs-region")
	if err = unix.Ftruncate(fd, int64(n)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err == nil {
		mem, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return mem, file, nil
}

// RegisterFile registers n bytes from off of a file of a device's FileTier, open
// for reading and writing. It keeps a descriptor of its own. The registration
// does not prevent truncation of the file: reading bytes that were cut off fails.
func (t *Table) RegisterFile(device devices.Name, f *os.File, off int64, n devices.Size) (*Buffer, error) {
	r := devices.Range{Off: devices.Offset(off), Len: n}
	if off < 0 || n == 0 || !r.Within(1<<63-1) || device == "" {
		return nil, fmt.Errorf("register %d bytes of a file of device %q from %d: %w", uint64(n), device, off, devices.ErrRange)
	}
	own, err := duplicate(f)
	if err != nil {
		return nil, fmt.Errorf("register %v of a file of device %s: %w", n, device, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(own.Fd()), &st); err != nil {
		return nil, errors.Join(fmt.Errorf("register %v of a file of device %s: %w", n, device, err), own.Close())
	}
	b := &Buffer{rest: transport.FileSpan(device, own, off, n), file: own, own: own.Close}
	return t.insert(space{file: transport.FileIDOf(st)}, uint64(off), n, b, nil), nil
}

// duplicate returns a descriptor of the same open file. It refuses O_APPEND, with
// which writes would not go to the given offset.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := descriptor.Duplicate(f)
	if err != nil {
		return nil, err
	}
	dup := os.NewFile(uintptr(fd), f.Name())
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, errors.Join(err, dup.Close())
	}
	if flags&unix.O_APPEND != 0 || flags&unix.O_ACCMODE != unix.O_RDWR {
		return nil, errors.Join(fmt.Errorf("the file must be open for reading and writing, without O_APPEND: %w", devices.ErrUnsupported), dup.Close())
	}
	return dup, nil
}

// Source describes the memory of a buffer, for a provider that passes it to
// another process. It is borrowed while the buffer is held.
type Source struct {
	// File holds the memory, from Off; nil if the memory is not in a file. Sealed
	// means that nothing can change the file's length.
	File   *os.File
	Off    uint64
	Sealed bool
	// Borrowed means that the file is borrowed for one transfer, which may extend it.
	Borrowed bool
	// Device is device memory; its Mem is nil for every other kind of memory.
	Device devices.Span
}

// Source returns the source of the memory. The zero Source is memory of this
// process alone.
func (b *Buffer) Source() Source {
	switch {
	case b.file != nil:
		return Source{File: b.file, Off: b.start, Borrowed: b.borrowed}
	case b.host != nil && b.reg.file != nil:
		return Source{File: b.reg.file, Off: b.start - b.reg.start, Sealed: true}
	}
	return Source{Device: b.dev}
}
