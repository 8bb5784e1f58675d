package place

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrBusy says that somebody uses the mount.
var ErrBusy = errors.New("the mount is in use")

// Detach unmounts an hmcfs mount without its daemon. lazy takes the name away
// at once and lets those who still use it finish.
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

// Wrest takes a mount away whose daemon does not answer: its name goes, and
// its connection is cut, so that whoever waits for an answer gets an error.
// cutErr says why the connection could not be cut; the mount is gone from its
// place all the same.
func Wrest(m Mount) (cutErr, err error) {
	const flags = unix.UMOUNT_NOFOLLOW | unix.MNT_DETACH
	// By MNT_FORCE root cuts the connection without the fusectl file system.
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
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("unmount %s: %w", mountPoint, ErrBusy)
	default:
		return fmt.Errorf("unmount %s: %w", mountPoint, err)
	}
}

// fusermount asks the set-user-id helper, which lets a user unmount what
// that user has mounted.
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

// IsDead says whether a mount's daemon is gone: the kernel answers for it
// that the transport endpoint is not connected. It is asked by statfs, which
// the kernel always hands on; stat may be answered from what it has kept.
// A user that the mount does not let in is not told.
func IsDead(mountPoint string) bool {
	var st unix.Statfs_t
	err := unix.Statfs(mountPoint, &st)
	return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED)
}

// CheckMountPoint says whether a mount may begin at the path: an empty
// directory. What is mounted there is the caller's to check first.
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
	if names, _ := d.Readdirnames(1); len(names) > 0 {
		return fmt.Errorf("mount point %s is not empty (it has %q); use an empty directory", path, names[0])
	}
	return nil
}

// bare takes the operation and the path off an error that names them itself.
func bare(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}
