package fs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// fsType is the type of the mounts as the kernel lists them.
const fsType = "fuse.hmcfs"

// checkMountPoint returns the absolute path of the mount point, or tells a
// person what is wrong with it and what to do.
func checkMountPoint(path string, allowNonEmpty bool) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("mount point %s: %w", path, err)
	}
	info, err := os.Stat(abs)
	switch {
	case errors.Is(err, syscall.ENOTCONN):
		return "", deadMount(abs)
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("%w: %s does not exist; make it with: mkdir -p %s", ErrMountPoint, abs, abs)
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrMountPoint, err)
	case !info.IsDir():
		return "", fmt.Errorf("%w: %s is not a directory; name an empty one", ErrMountPoint, abs)
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return "", fmt.Errorf("%w: %w", ErrMountPoint, err)
	}
	if err := checkNotMounted(abs); err != nil {
		return "", err
	}
	if !allowNonEmpty {
		return abs, checkEmpty(abs)
	}
	return abs, nil
}

func checkNotMounted(path string) error {
	kind, err := mountedAt(path)
	switch {
	case err != nil:
		return fmt.Errorf("look for a mount at %s: %w", path, err)
	case kind == fsType && isDead(path):
		return deadMount(path)
	case kind == fsType:
		return fmt.Errorf("%w: %s is an hmcfs mount already; see it with: hmcfs status %s, or end it with: hmcfs umount %s", ErrMountPoint, path, path, path)
	case kind != "":
		return fmt.Errorf("%w: %s is a mount of type %s already; unmount it or name another directory", ErrMountPoint, path, kind)
	}
	return nil
}

// isDead says that no daemon answers for a mount. The kernel answers stat of
// its root from what it keeps, but never statfs.
func isDead(path string) bool {
	var st unix.Statfs_t
	return errors.Is(unix.Statfs(path, &st), syscall.ENOTCONN)
}

func deadMount(path string) error {
	return fmt.Errorf("%w: %s is a dead mount, whose daemon is gone; clean it up with: hmcfs umount %s", ErrMountPoint, path, path)
}

func checkEmpty(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMountPoint, err)
	}
	defer func() { _ = dir.Close() }() // it was only read
	names, err := dir.Readdirnames(1)
	if len(names) > 0 {
		return fmt.Errorf("%w: %s is not empty (it has %q); name an empty directory, or mount over it with the option nonempty", ErrMountPoint, path, names[0])
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %w", ErrMountPoint, err)
	}
	return nil
}

// mountedAt returns the type of the mount whose root a path is, "" for none.
func mountedAt(path string) (string, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // it was only read
	return mountType(file, path)
}

// mountType finds a mount in the lines of mountinfo; the last one that is
// mounted at the path is the one that is seen.
func mountType(mountinfo io.Reader, path string) (string, error) {
	kind := ""
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		front, back, found := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(front)
		types := strings.Fields(back)
		if !found || len(fields) < 5 || len(types) == 0 {
			continue
		}
		if unescapeMount(fields[4]) == path {
			kind = types[0]
		}
	}
	return kind, lines.Err()
}

// unescapeMount undoes the octal escapes of /proc/self/mountinfo.
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
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
