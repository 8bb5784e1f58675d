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

// checkMountPoint returns the path of the mount point without links. That it
// is empty, and free of other mounts, is for the caller to see to.
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
		return "", fmt.Errorf("%w: %s is not a directory; name an empty one", ErrMountPoint, abs)
	}
	return abs, nil
}

// isDead says that no daemon answers for a mount. The kernel answers stat of
// its root from what it keeps, but never statfs.
func isDead(path string) bool {
	var st unix.Statfs_t
	return errors.Is(unix.Statfs(path, &st), syscall.ENOTCONN)
}

// checkFUSE tells a person why this machine or user can't mount.
func checkFUSE(allowOther bool) error {
	file, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: there is no /dev/fuse; load the module with: modprobe fuse, or start the container with: --device /dev/fuse", ErrNoFUSE)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: no permission to open /dev/fuse; run as root, or let your user in with: chmod 666 /dev/fuse", ErrNoFUSE)
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
		return fmt.Errorf("%w: allow-other for a user other than root needs the line user_allow_other in /etc/fuse.conf", ErrNoFUSE)
	}
	return nil
}

// fusermount finds the helper that mounts for users other than root.
func fusermount() (string, error) {
	for _, name := range []string{"fusermount3", "/bin/fusermount3", "fusermount", "/bin/fusermount"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: a user other than root mounts by fusermount3, which is not installed; install it with: apt-get install fuse3", ErrNoFUSE)
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
