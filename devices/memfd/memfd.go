package memfd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Create makes a file of n zero bytes that can be neither shrunk nor grown. It uses memory
// only for the pages that are written, unless the kernel does not overcommit.
//
// Errors: devices.ErrOutOfMemory.
func Create(name string, n int64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create a memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memfd:"+name)
	if err := unix.Ftruncate(fd, n); err != nil {
		return nil, errors.Join(fmt.Errorf("size a memfd to %d bytes: %w", n, err), f.Close())
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealed); err != nil {
		return nil, errors.Join(fmt.Errorf("seal a memfd: %w", err), f.Close())
	}
	return reserved(f, n)
}

// Check fails unless f is a file as Create or a Space makes it, of exactly n bytes.
func Check(f *os.File, n int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("look at %s: %w", f.Name(), err)
	}
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	switch {
	case err != nil:
		return fmt.Errorf("read the seals of %s: %w", f.Name(), err)
	case st.Size != n:
		return fmt.Errorf("%s has %d bytes, not %d", f.Name(), st.Size, n)
	case seals&sealed != sealed && (seals != unix.F_SEAL_SEAL || st.Nlink != 0):
		return fmt.Errorf("the size of %s is not sealed", f.Name())
	}
	return nil
}

// Map maps n bytes of f at off, a page boundary, shared with every process that maps the file.
func Map(f *os.File, off int64, n int) ([]byte, error) {
	p, err := unix.Mmap(int(f.Fd()), off, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of %s: %w", n, f.Name(), err)
	}
	return p, nil
}
