package mnt

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// Tmpfs mounts the kernel's own in-memory file system and returns the mount point. Expectations
// about hmcfs are tried on it, too, so that the expectations themselves are verified. size is
// as in mount(8), such as 64m.
func Tmpfs(t testing.TB, size string) string {
	t.Helper()
	kit.Require(t, "root")
	dir := TempDir(t)
	if err := unix.Mount("hmcfs-test", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size="+size); err != nil {
		t.Fatalf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount tmpfs: %v", err)
		}
	})
	return dir
}
