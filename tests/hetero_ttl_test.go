package tests

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// A time to live is a point in time, which a restart of the daemon does not change.
func TestTimeToLiveOutlivesTheDaemon(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	const n = 5000
	for name, ttl := range map[string]string{"short": "1", "long": "600"} {
		must(t, os.WriteFile(m.Path("host", name), kit.Bytes(3, 0, n), 0o600))
		must(t, unix.Setxattr(m.Path("host", name), "user.hmc.key", []byte(name), 0))
		must(t, unix.Setxattr(m.Path("host", name), "user.hmc.ttl", []byte(ttl), 0))
	}
	m.Kill()
	m.Start()
	kit.Eventually(t, mntPatience, func() bool {
		_, gone := os.Lstat(m.Path("host", "short"))
		return errors.Is(gone, os.ErrNotExist)
	})
	if _, err := os.Readlink(m.Path("keys", "short")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its key: %v", err)
	}
	value := make([]byte, 20)
	k, err := unix.Getxattr(m.Path("keys", "long"), "user.hmc.ttl", value)
	must(t, err)
	left, err := strconv.Atoi(string(value[:k]))
	if err != nil || left < 1 || left > 600 {
		t.Errorf("%q of 600 seconds are left", value[:k])
	}
	got, err := os.ReadFile(m.Path("keys", "long"))
	must(t, err)
	if at := kit.DiffAt(got, 3, 0); len(got) != n || at >= 0 {
		t.Errorf("%d bytes, byte %d differs", len(got), at)
	}
}
