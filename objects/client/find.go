package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotMounted reports that a file is not on an hmcfs mount.
var ErrNotMounted = errors.New("not on an hmcfs mount")

// Find returns a client of the daemon whose mount contains a file, and the file for the
// client's calls. The file is opened only to be named, not read or written (O_PATH); the
// caller must close it. Symbolic links are followed. A served directory (Served), and what is
// below it, leads to its daemon too.
//
// Errors: ErrNotMounted.
func Find(path string) (*Client, *os.File, error) {
	f, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return nil, nil, err
	}
	c, err := Of(f)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return c, f, nil
}

// Of is Find for an open file. The address of the daemon is read from the mount itself.
//
// Errors: ErrNotMounted.
func Of(f *os.File) (*Client, error) {
	path, err := pathOf(f)
	if err != nil {
		return nil, err
	}
	root, err := mountRoot(path)
	if err != nil {
		return nil, fmt.Errorf("find the mount of %s: %w", f.Name(), err)
	}
	c, err := readConfig(filepath.Join(root, ControlDir, "config"))
	if err == nil && !c.Served {
		return New(c.Socket), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("find the daemon of %s: %w", root, err)
	}
	s, found := ServedOf(path)
	switch {
	case !found:
		if err = Untrusted(path); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotMounted, err)
		}
		return nil, fmt.Errorf("%s: %w", f.Name(), ErrNotMounted)
	case s.Socket == "":
		return nil, fmt.Errorf("find the daemon of %s: %w", s.Dir, os.ErrPermission)
	}
	return NewOf(s.Socket, s.Owner), nil
}

// pathOf returns the path of an open file.
func pathOf(f *os.File) (string, error) {
	number, err := numberOf(f)
	if err != nil {
		return "", err
	}
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(number))
}

// mountRoot returns the topmost directory above a path that is on the same device.
func mountRoot(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	for dev := st.Dev; path != "/"; path = filepath.Dir(path) {
		if err := unix.Lstat(filepath.Dir(path), &st); err != nil {
			return "", &os.PathError{Op: "stat", Path: filepath.Dir(path), Err: err}
		}
		if st.Dev != dev {
			break
		}
	}
	return path, nil
}
