package place

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/client"
)

// ErrBusy means that a process uses the mount.
var ErrBusy = errors.New("the mount is in use")

// Detach unmounts an hmcfs mount without its daemon. lazy removes the name at once and lets
// processes that still use the mount finish.
func Detach(mountPoint string, lazy bool) error {
	flags := unix.UMOUNT_NOFOLLOW
	if lazy {
		flags |= unix.MNT_DETACH
	}
	err := unix.Unmount(mountPoint, flags)
	if !errors.Is(err, unix.EPERM) {
		return describeDetach(mountPoint, err)
	}
	return fusermount(mountPoint, lazy)
}

// Wrest removes a mount whose daemon does not answer: its name is removed, and its
// connection is cut, so that processes that wait for an answer get an error. cutErr says
// why the connection could not be cut; the mount is removed nevertheless.
func Wrest(m Mount) (cutErr, err error) {
	const flags = unix.UMOUNT_NOFOLLOW | unix.MNT_DETACH
	// With MNT_FORCE root cuts the connection even without the fusectl filesystem.
	err = unix.Unmount(m.MountPoint, flags|unix.MNT_FORCE)
	if err == nil || !errors.Is(err, unix.EPERM) {
		return nil, describeDetach(m.MountPoint, err)
	}
	if err = fusermount(m.MountPoint, true); err != nil {
		return nil, err
	}
	return Abort(m.Dev), nil
}

func describeDetach(mountPoint string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EBUSY) {
		err = ErrBusy
	}
	return fmt.Errorf("unmount %s: %w", mountPoint, err)
}

// fusermount calls the set-user-ID helper, with which a user can unmount a mount of that
// user.
func fusermount(mountPoint string, lazy bool) error {
	args := []string{"-u", "--", mountPoint}
	if lazy {
		args = []string{"-u", "-z", "--", mountPoint}
	}
	var last error
	for _, name := range []string{"fusermount3", "fusermount"} {
		text, err := exec.Command(name, args...).CombinedOutput()
		if err == nil {
			return nil
		}
		if errors.Is(err, exec.ErrNotFound) {
			last = fmt.Errorf("unmount %s: %s is not installed; install fuse3", mountPoint, name)
			continue
		}
		said := strings.TrimSpace(string(text))
		if strings.Contains(said, "busy") {
			return fmt.Errorf("unmount %s: %w", mountPoint, ErrBusy)
		}
		return fmt.Errorf("unmount %s: %s", mountPoint, said)
	}
	return last
}

// IsDead reports whether a mount's daemon has ended: the kernel then answers that the
// transport endpoint is not connected. It uses statfs, which the kernel always forwards;
// stat may be answered from a cache. For a user without access to the mount it returns
// false.
func IsDead(mountPoint string) bool {
	var st unix.Statfs_t
	err := unix.Statfs(mountPoint, &st)
	return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED)
}

// CheckMountPoint returns an error unless a mount can begin at the path, which must be an
// empty directory, or one that a daemon without a mount left. The caller checks first what is
// mounted there.
func CheckMountPoint(path string) error {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("mount point %s does not exist; create it: mkdir -p %s", path, path)
	case err != nil:
		return fmt.Errorf("mount point %s: %w", path, bare(err))
	case !st.IsDir():
		return fmt.Errorf("mount point %s is not a directory; use an empty directory", path)
	}
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("mount point %s: %w", path, bare(err))
	}
	defer func() { _ = d.Close() }()
	names, _ := d.Readdirnames(2)
	if len(names) == 1 && names[0] == client.ControlDir && isServedControl(path) {
		return nil // its daemon is dead, or has the lock
	}
	if s, served := client.ServedAt(path); served {
		return fmt.Errorf("%s is served by a daemon of user %d; use another directory", path, s.Owner)
	}
	if len(names) > 0 {
		return fmt.Errorf("mount point %s is not empty (it has %q); use an empty directory", path, names[0])
	}
	return nil
}

// bare removes the operation and the path from an error.
func bare(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}
