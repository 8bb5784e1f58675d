package fs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// checkMountPoint returns the path of the mount point with symbolic links resolved. The
// caller must ensure that it is empty and free of other mounts.
func checkMountPoint(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrMountPoint, err)
	}
	info, err := os.Stat(abs)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrMountPoint, err)
	case !info.IsDir():
		return "", fmt.Errorf("%w: %s is not a directory; use an empty directory", ErrMountPoint, abs)
	}
	return abs, nil
}

// isDead reports whether a mount has no daemon. The kernel answers stat of its root from
// its cache, but never statfs.
func isDead(path string) bool {
	var st unix.Statfs_t
	return errors.Is(unix.Statfs(path, &st), syscall.ENOTCONN)
}

// checkFUSE explains for the user why this machine or user can't mount.
func checkFUSE(allowOther bool) error {
	file, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: /dev/fuse does not exist; load the module with: modprobe fuse, or start the container with: --device /dev/fuse", ErrNoFUSE)
	case errors.Is(err, os.ErrPermission) && os.Geteuid() == 0:
		return fmt.Errorf("%w: /dev/fuse can't be opened, not even by root of this container or user namespace: %w; start the container with: --device /dev/fuse", ErrNoFUSE, err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: no permission to open /dev/fuse; run as root, or give your user access with: chmod 666 /dev/fuse", ErrNoFUSE)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNoFUSE, err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("%w: %w", ErrNoFUSE, err)
	}
	if os.Geteuid() == 0 {
		return nil
	}
	if _, err := fusermount(); err != nil {
		return err
	}
	if allowOther && !userAllowOther() {
		return fmt.Errorf("%w: allow-other, for a user other than root, requires the line user_allow_other in /etc/fuse.conf", ErrNoFUSE)
	}
	return nil
}

// fusermount returns the helper that mounts for users other than root.
func fusermount() (string, error) {
	for _, name := range []string{"fusermount3", "/bin/fusermount3", "fusermount", "/bin/fusermount"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: a user other than root mounts with fusermount3, which is not installed; install it with: apt-get install fuse3", ErrNoFUSE)
}

func userAllowOther() bool {
	conf, err := os.ReadFile("/etc/fuse.conf")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(conf)) {
		if strings.TrimSpace(line) == "user_allow_other" {
			return true
		}
	}
	return false
}
