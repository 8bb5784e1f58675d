package mnt

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolatedEnv says that the process has a mount namespace of its own.
const isolatedEnv = "HMCFS_TEST_ISOLATED"

// isolate starts the test process again in a mount namespace of its own, so
// that tests of other packages, which run at the same time, and these don't
// see each other's mounts, and that the kernel takes the mounts away when the
// last process of the tests is gone. Without the privilege it does nothing:
// then there are no mounts.
func isolate() error {
	if os.Getenv(isolatedEnv) != "" || os.Geteuid() != 0 {
		return nil
	}
	// The new namespace is that of this thread, which execve makes the only
	// one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return nil //nolint:nilerror // no CAP_SYS_ADMIN, so no mounts either
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := os.Setenv(isolatedEnv, "1"); err != nil {
		return err
	}
	err := syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	return fmt.Errorf("start the tests again: %w", err)
}
