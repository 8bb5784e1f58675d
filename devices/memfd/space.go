package memfd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Space makes files whose memory consists of huge pages, if the process may mount a file
// system: memfds have huge pages only if the administrator has enabled them, and without
// them large copies are much slower. The zero value makes memfds.
type Space struct {
	// root is a tmpfs that is mounted nowhere. It ends with its last file.
	root *os.File
}

// OpenSpace returns a space. If none with huge pages can be had, it makes memfds.
func OpenSpace() Space {
	root, err := mountNowhere("0")
	if err != nil {
		return Space{}
	}
	return Space{root: root}
}

// mountNowhere makes a tmpfs of at most size bytes; 0 is no limit.
func mountNowhere(size string) (root *os.File, err error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unix.Close(fs)) }()
	for _, option := range [][2]string{{"huge", "within_size"}, {"size", size}, {"mode", "0700"}} {
		if err = unix.FsconfigSetString(fs, option[0], option[1]); err != nil {
			return nil, err
		}
	}
	if err = unix.FsconfigCreate(fs); err != nil {
		return nil, err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "tmpfs"), nil
}

// Create makes a file of n zero bytes, as the function Create does. One with huge pages
// has no name and no seals: only its descriptors lead to it.
func (s Space) Create(name string, n int64) (*os.File, error) {
	if s.root == nil {
		return Create(name, n)
	}
	fd, err := unix.Openat(int(s.root.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memfd:"+name)
	if err := unix.Ftruncate(fd, n); err != nil {
		return nil, errors.Join(fmt.Errorf("size a file in memory to %d bytes: %w", n, err), f.Close())
	}
	return reserved(f, n)
}

// Close ends the space; its files remain.
func (s Space) Close() error {
	if s.root == nil {
		return nil
	}
	return s.root.Close()
}
