package bench

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// sharedMemory is the tmpfs that every Linux machine has.
const sharedMemory = "/dev/shm"

// baseline returns a directory on tmpfs and a function that removes it: the requested
// directory, a tmpfs for this run, or /dev/shm.
func (o *Options) baseline() (dir string, done func() error, err error) {
	nothing := func() error { return nil }
	if o.Baseline != "" {
		return o.Baseline, nothing, nil
	}
	dir, done, err = PrivateTmpfs(3 * o.Size)
	if errors.Is(err, unix.EPERM) {
		return sharedMemory, nothing, nil
	}
	return dir, done, err
}

// PrivateTmpfs mounts a tmpfs for size bytes on a new directory, and returns a function
// that removes both. The error is EPERM for users without the permission to mount.
func PrivateTmpfs(size devices.Size) (dir string, done func() error, err error) {
	dir, err = os.MkdirTemp("", "hmcfs-bench-tmpfs-")
	if err != nil {
		return "", nil, err
	}
	options := fmt.Sprintf("size=%d,mode=700", uint64(size))
	if err := unix.Mount("hmcfs-bench", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return "", nil, errors.Join(fmt.Errorf("mount a tmpfs: %w", err), os.Remove(dir))
	}
	return dir, func() error {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
		return os.Remove(dir)
	}, nil
}
