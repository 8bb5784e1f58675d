package mnt

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolatedEnv marks that the process has a mount namespace of its own.
const isolatedEnv = "HMCFS_TEST_ISOLATED"

// isolate restarts the test process in a mount namespace of its own, so that these tests and
// those of other packages, which run at the same time, don't see each other's mounts, and the
// kernel removes the mounts when the last process of the tests ends. Without the privilege it
// does nothing: then there are no mounts.
func isolate() error {
	if os.Getenv(isolatedEnv) != "" || os.Geteuid() != 0 {
		return nil
	}
	// The new namespace belongs to this thread, which execve makes the only one.
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
