package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestLimitsOfNamesAndAttributes reaches each limit of the records through a
// mount: the error and the counter are those of the limit, and what counts is the
// same after a kill.
func TestLimitsOfNamesAndAttributes(t *testing.T) {
	kit.Check(t)
	const names, bytes = 20, 40_000
	m := mnt.Mount(t, mnt.Options{AllowOther: true, Extra: []string{
		"--limit", fmt.Sprint("user-names=", names), "--limit", fmt.Sprint("user-xattr-bytes=", bytes),
		"--limit", "inode-xattrs=3", "--limit", "inode-xattr-bytes=30000",
	}})
	dir := openDir(t, m.Path("sim0"))
	file := func(i int) string { return filepath.Join(dir, fmt.Sprint("f", i)) }
	set := func(i int, name string, n int) error {
		return unix.Setxattr(file(i), "user."+name, kit.Bytes(uint64(i), 0, n), 0)
	}
	refused := func(limit string, want int) {
		t.Helper()
		text, err := m.Client().Metrics(t.Context())
		if line := fmt.Sprintf("hmcfs_limit_refusals_total{limit=%q} %d\n", limit, want); err != nil || !strings.Contains(text, line) {
			t.Errorf("the metrics don't say %q: %v", line, err)
		}
	}
	mnt.AsUser(t, userAlice(), func() {
		for i := range names {
			must(t, os.WriteFile(file(i), nil, 0o600))
		}
		wantErrno(t, unix.Mkdir(file(names), 0o700), unix.EDQUOT)
		must(t, set(0, "a", 20_000))
		wantErrno(t, set(0, "b", 20_000), unix.ENOSPC)
		must(t, set(0, "b", 10))
		must(t, set(0, "c", 10))
		wantErrno(t, set(0, "d", 10), unix.ENOSPC)
		must(t, set(1, "a", 19_000))
		wantErrno(t, set(2, "a", 5_000), unix.EDQUOT)
		must(t, set(2, "a", 500))
	})
	refused("user-names", 1)
	refused("inode-xattr-bytes", 1)
	refused("inode-xattrs", 1)
	refused("user-xattr-bytes", 1)
	m.Kill()
	m.Start()
	mnt.AsUser(t, userAlice(), func() {
		wantErrno(t, unix.Mkdir(file(names), 0o700), unix.EDQUOT)
		wantErrno(t, set(3, "a", 5_000), unix.EDQUOT)
		// Exactly one name is free again, and the bytes of the file's attributes.
		must(t, os.Remove(file(1)))
		must(t, set(3, "a", 19_000))
		must(t, unix.Mkdir(file(names), 0o700))
		wantErrno(t, unix.Mkdir(file(names+1), 0o700), unix.EDQUOT)
	})
}
