package cluster

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestRootIsToldOfSquash mounts as root, as documented: a mount that admits no user from other
// nodes says so, and with the option that it names they are admitted.
func TestRootIsToldOfSquash(t *testing.T) {
	w := newWorld(t, worldOptions{machines: 2, alone: true})
	var nodes []*node
	start := func(squash string) {
		for i, name := range []string{"a", "b"} {
			n := w.prepare(name, i, "--squash", squash)
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
}
