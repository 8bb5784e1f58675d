package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// files is the device's set of files: flat, with names of 16 hex digits, accessed through
// an open directory so that no path is resolved.
type files struct{ d *Device }

func fileName(id uint64) string { return fmt.Sprintf("%016x", id) }

// fileID parses the name of a file; ok is false for a name that is not one of the set's.
func fileID(name string) (id uint64, ok bool) {
	id, err := strconv.ParseUint(name, 16, 64)
	return id, err == nil && name == fileName(id)
}

// Open opens a file for reading and writing, or creates one that does not exist.
func (f files) Open(id uint64, create bool) (*os.File, error) {
	leave, err := f.d.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	flags := unix.O_RDWR | unix.O_CLOEXEC | unix.O_NOFOLLOW
	if create {
		flags |= unix.O_CREAT | unix.O_EXCL
		if err = f.d.limit.admit(); err != nil {
			return nil, err
		}
	}
	name := fileName(id)
	fd, err := unix.Openat(int(f.d.store.files.Fd()), name, flags, 0o600)
	if err != nil && create {
		f.d.limit.dismiss()
	}
	if errors.Is(err, unix.ENOSPC) {
		return nil, tooMany(f.d.store.path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open host file", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Stat returns the kernel's attributes of a file.
func (f files) Stat(id uint64) (st unix.Stat_t, err error) {
	leave, err := f.d.enter()
	if err != nil {
		return st, err
	}
	defer leave()
	name := fileName(id)
	if err := unix.Fstatat(int(f.d.store.files.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return st, &os.PathError{Op: "stat host file", Path: name, Err: err}
	}
	return st, nil
}

// Remove frees the file's memory.
func (f files) Remove(id uint64) error {
	leave, err := f.d.enter()
	if err != nil {
		return err
	}
	defer leave()
	name := fileName(id)
	var freed devices.Size
	if f.d.mode == ModeQuota {
		freed = blocksOf(f.d.store, name)
	}
	err = unix.Unlinkat(int(f.d.store.files.Fd()), name, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return &os.PathError{Op: "remove host file", Path: name, Err: err}
	}
	f.d.limit.removed(freed)
	f.d.limit.dismiss()
	return nil
}

// perFile is the number of bytes of a tier's size per file that it may have: a file with
// content takes no less. Without a limit, empty files could use unbounded kernel memory.
const perFile = pageSize

// moreFiles is the number of additional files that a tier of any size may have.
const moreFiles = 1024

func filesFor(size devices.Size) uint64 { return uint64(size/perFile) + moreFiles }

func tooMany(path string) error {
	return fmt.Errorf("host tier %s: it has its maximum number of files, one for each %v of its size; remove some, or mount with a larger size=: %w",
		path, perFile, devices.ErrOutOfMemory)
}

// Each calls fn with the number of every file. fn may remove files.
func (f files) Each(fn func(id uint64) error) error {
	dir, err := f.d.openFiles()
	if err != nil {
		return err
	}
	return eachName(dir, func(_ string, id uint64) error { return fn(id) })
}

// Reserve checks whether a file may grow by n bytes.
func (f files) Reserve(n devices.Size) error {
	leave, err := f.d.enter()
	if err != nil {
		return err
	}
	defer leave()
	return f.d.limit.reserve(n)
}

// openFiles opens the directory again, so that each reader has its own position and is not
// affected by Close.
func (d *Device) openFiles() (*os.File, error) {
	leave, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	return openDir(int(d.store.files.Fd()), ".")
}

// eachFile calls fn with every file of a store.
func eachFile(s *store, fn func(name string, id uint64) error) error {
	dir, err := openDir(int(s.files.Fd()), ".")
	if err != nil {
		return err
	}
	return eachName(dir, fn)
}

// eachName reads a directory to its end and closes it.
func eachName(dir *os.File, fn func(name string, id uint64) error) error {
	defer func() { _ = dir.Close() }()
	for {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			id, ok := fileID(name)
			if !ok {
				continue
			}
			if stop := fn(name, id); stop != nil {
				return stop
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list the host tier: %w", err)
		}
	}
}
