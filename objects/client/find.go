package client

import (
	"encoding/json"
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
// caller must close it. Symbolic links are followed.
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

// Of returns a client of the daemon whose mount contains an open file. The address of the
// daemon is read from the mount itself.
//
// Errors: ErrNotMounted.
func Of(f *os.File) (*Client, error) {
	root, err := mountRoot(f)
	if err != nil {
		return nil, fmt.Errorf("find the mount of %s: %w", f.Name(), err)
	}
	data, err := os.ReadFile(filepath.Join(root, ".hmcfs", "config"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", f.Name(), ErrNotMounted)
	}
	if err != nil {
		return nil, fmt.Errorf("find the daemon of %s: %w", root, err)
	}
	var config struct {
		Socket string `json:"socket"`
	}
	if err := json.Unmarshal(data, &config); err != nil || config.Socket == "" {
		return nil, fmt.Errorf("%s: %s names no socket: %w", f.Name(), filepath.Join(root, ".hmcfs", "config"), ErrNotMounted)
	}
	return New(config.Socket), nil
}

// mountRoot returns the topmost directory above a file that is on the same device.
func mountRoot(f *os.File) (string, error) {
	number, err := numberOf(f)
	if err != nil {
		return "", err
	}
	path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(number))
	if err != nil {
		return "", err
	}
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
