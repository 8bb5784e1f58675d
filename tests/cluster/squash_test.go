package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestRootIsToldOfSquash mounts as root, as documented: a mount that admits no user from other
// nodes says so, and with the option that it names they are admitted.
func TestRootIsToldOfSquash(t *testing.T) {
	w := newWorld(t, worldOptions{machines: 2, alone: true})
	options := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(options, nil, 0o600))
	var nodes []*node
	start := func(squash string) {
		for i, name := range []string{"a", "b"} {
			n := w.prepare(name, i, "--squash", squash, "--config", options)
			n.Start()
			nodes = append(nodes, n)
		}
	}
	start("root")
	a, b := nodes[0], nodes[1]
	const hint = "no user of another node has access"
	if log := b.Log(); !strings.Contains(log, hint) || !strings.Contains(log, "--squash none") {
		t.Errorf("nothing says that nobody gets in from other nodes: %s", log)
	}
	if _, err := os.ReadDir(a.at("b", "host")); !errors.Is(err, syscall.EACCES) {
		t.Errorf("root of another node: %v", err)
	}
	a.Umount()
	b.Umount()
	start("none")
	a, b = nodes[2], nodes[3]
	if log := b.Log(); strings.Contains(log, hint) {
		t.Errorf("where root gets in: %s", log)
	}
	write(t, b.Path("host", "x"), 1, mib)
	kit.Eventually(t, patience, func() error { return check(a.at("b", "host", "x"), 1, mib) })
	b.Umount("--keep")
	must(t, os.WriteFile(options, []byte("option: [ro]\n"), 0o600))
	b.Start()
	kit.Eventually(t, patience, func() error { return check(a.at("b", "host", "x"), 1, mib) })
	readOnlyNode(t, a)
}

// readOnlyNode tries to change the files of node b, which is mounted with -o ro, by another one.
func readOnlyNode(t *testing.T, a *node) {
	t.Helper()
	x, y := a.at("b", "host", "x"), a.at("b", "host", "y")
	write(t, a.Path("host", "new"), 2, mib)
	for name, change := range map[string]func() error{
		"write":    func() error { return os.WriteFile(x, []byte("y"), 0o600) },
		"create":   func() error { return os.WriteFile(y, []byte("y"), 0o600) },
		"mkdir":    func() error { return os.Mkdir(y, 0o700) },
		"link":     func() error { return os.Link(x, y) },
		"symlink":  func() error { return os.Symlink("x", y) },
		"rename":   func() error { return os.Rename(x, y) },
		"remove":   func() error { return os.Remove(x) },
		"truncate": func() error { return os.Truncate(x, 0) },
		"chmod":    func() error { return os.Chmod(x, 0o777) },
		"key":      func() error { return syscall.Setxattr(x, "user.hmc.key", []byte("k"), 0) },
	} {
		if err := change(); !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, verb := range [][]string{{"cp", a.Path("host", "new"), x}, {"allreduce", "--dtype", "u8", a.Path("host", "new"), x}} {
		if _, err := a.Run(verb...); err == nil || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("%v: %v", verb, err)
		}
	}
	if err := check(x, 1, mib); err != nil {
		t.Error(err)
	}
}
