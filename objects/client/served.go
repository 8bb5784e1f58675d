package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ControlDir is the name of the directory, in a mount and in a served directory, whose file
// config names the socket of the daemon.
const ControlDir = ".hmcfs"

// Served is a directory that takes the place of the mount point of a daemon without a mount.
type Served struct {
	Dir string
	// Owner is the user of the directory. The daemon must run as that user.
	Owner int
	// Socket is empty if this user may not read it.
	Socket string
}

// othersWrite holds the mode bits that let others than the owner write.
const othersWrite = 0o022

// ServedAt reports whether a directory is a served one, whose daemon may be dead. A directory
// that others than its owner may write to is none: anybody could have made it look like one.
func ServedAt(dir string) (Served, bool) {
	root, err := os.Lstat(dir)
	if err != nil || !root.IsDir() || root.Mode()&othersWrite != 0 {
		return Served{}, false
	}
	s := Served{Dir: dir, Owner: ownerOf(root)}
	control, err := os.Lstat(filepath.Join(dir, ControlDir))
	if err != nil || !control.IsDir() || ownerOf(control) != s.Owner || control.Mode()&othersWrite != 0 {
		return Served{}, false
	}
	path := filepath.Join(dir, ControlDir, "config")
	config, err := readConfig(path)
	if errors.Is(err, fs.ErrPermission) {
		return s, true
	}
	// A copy of such a directory, or of a mount, is none.
	if err != nil || !config.Served || config.MountPoint != dir {
		return Served{}, false
	}
	s.Socket = config.Socket
	return s, true
}

// ServedOf returns the served directory that contains a path without symbolic links; the path
// need not exist.
func ServedOf(path string) (Served, bool) {
	for dir := path; ; dir = filepath.Dir(dir) {
		if s, found := ServedAt(dir); found {
			return s, true
		}
		if dir == filepath.Dir(dir) {
			return Served{}, false
		}
	}
}

// Untrusted returns an error if a directory that contains a path is not a served one only because
// others may write to it.
func Untrusted(path string) error {
	for dir := path; ; dir = filepath.Dir(dir) {
		control := filepath.Join(dir, ControlDir)
		if config, err := readConfig(filepath.Join(control, "config")); err == nil && config.Served && config.MountPoint == dir {
			for _, at := range []string{dir, control} {
				if st, err := os.Lstat(at); err == nil && st.Mode()&othersWrite != 0 {
					return fmt.Errorf("other users may write to %s, so it could lead to a daemon of theirs; revoke that permission: chmod go-w %s", at, at)
				}
			}
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func ownerOf(st fs.FileInfo) int {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(sys.Uid)
	}
	return -1
}

// fileConfig is the part of the control file config that locates the daemon.
type fileConfig struct {
	Socket     string `json:"socket"`
	MountPoint string `json:"mount-point"`
	// Served is set for a daemon without a mount.
	Served bool `json:"served"`
}

// readConfig reads the control file config.
//
// Errors: ErrNotMounted if it names no socket; those of the operating system.
func readConfig(path string) (fileConfig, error) {
	var c fileConfig
	data, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, &c); err != nil || c.Socket == "" {
		return c, fmt.Errorf("%s names no socket: %w", path, ErrNotMounted)
	}
	return c, nil
}
