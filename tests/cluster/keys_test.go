package cluster

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// named fails the test unless a command fails and names node a.
func named(t *testing.T, n *node, args ...string) {
	t.Helper()
	out, err := n.Run(args...)
	if err == nil || !strings.Contains(err.Error(), "node a") {
		t.Errorf("%s: hmcfs %s: %v\n%s", n.name, strings.Join(args, " "), err, out)
	}
}

// keySays waits until a node reads the bytes of a seed under a key.
func keySays(t *testing.T, n *node, key string, seed uint64) {
	t.Helper()
	kit.Eventually(t, patience, func() error { return check(n.Path("keys", key), seed, mib) })
}

// setKey creates a file from a seed and sets its key, or returns the error.
func setKey(t *testing.T, n *node, key, name string, seed uint64) error {
	t.Helper()
	if _, err := os.Stat(n.Path("host", name)); errors.Is(err, os.ErrNotExist) {
		write(t, n.Path("host", name), seed, mib)
	}
	_, err := n.Run("mset", key+"="+n.Path("host", name))
	return err
}

// TestKeyOfACutNode cuts the network of a fixed list: no node treats a key as free while its
// node can't be asked, every command names that node, and after the cut the key is where it
// was. A forgotten node does not block any other, and when it is back both see one object
// under the key.
func TestKeyOfACutNode(t *testing.T) {
	w, nodes := newNodes(t, worldOptions{machines: 2})
	a, b := nodes[0], nodes[1]
	if err := setKey(t, a, "k", "x", 1); err != nil {
		t.Fatal(err)
	}
	keySays(t, b, "k", 1)
	must(t, a.space.Cut(t.Context(), b.space))
	write(t, b.Path("host", "y"), 2, mib)
	named(t, b, "mset", "k="+b.Path("host", "y"))
	named(t, b, "mset", "free="+b.Path("host", "y"))
	named(t, b, "publish", "p="+b.Path("host", "y"))
	named(t, b, "exist", "--mount", b.Dir, "k")
	named(t, b, "mget", "--mount", b.Dir, "k=-")
	named(t, b, "del", "--mount", b.Dir, "k")
	named(t, b, "wait", "--mount", b.Dir, "--timeout", "1s", "k")
	named(t, b, "ls-keys", "--mount", b.Dir)
	must(t, a.space.Mend(t.Context(), b.space))
	keySays(t, b, "k", 1)
	if err := setKey(t, b, "k", "y", 2); err == nil || !strings.Contains(err.Error(), "exist") {
		t.Errorf("set a key that another node has: %v", err)
	}

	must(t, a.space.Cut(t.Context(), b.space))
	named(t, b, "mset", "k="+b.Path("host", "y"))
	hmcfs(t, b, "nodes", "--forget", "a", b.Dir)
	b.lists()
	if err := setKey(t, b, "k", "y", 2); err != nil {
		t.Fatalf("without the node that is forgotten: %v", err)
	}
	verify(t, b.Path("keys", "k"), 2, mib)
	must(t, a.space.Mend(t.Context(), b.space))
	// The object of a was created earlier.
	keySays(t, b, "k", 1)
	verify(t, a.Path("keys", "k"), 1, mib)
	verify(t, b.Path("host", "y"), 2, mib)
	for _, n := range w.nodes {
		kit.Eventually(t, patience, func() error {
			if text := hmcfs(t, n, "nodes", n.Dir); !strings.Contains(text, "1 keys were found on two nodes") {
				return fmt.Errorf("%s: %s", n.name, text)
			}
			return nil
		})
	}
	b.lists("a")
}

// TestKeyWhileEtcdIsAway stops etcd: nodes that reach each other ask each other for keys, a
// node that is cut off is named, and when etcd is back each key still belongs to one node.
func TestKeyWhileEtcdIsAway(t *testing.T) {
	_, nodes := newNodes(t, worldOptions{etcd: plainEtcd()})
	a, b, c := nodes[0], nodes[1], nodes[2]
	w := a.w
	if err := setKey(t, a, "before", "x", 1); err != nil {
		t.Fatal(err)
	}
	keySays(t, b, "before", 1)
	w.etcd.Stop()
	kit.Eventually(t, patience, func() error {
		if b.cluster().State.UnreachableSince.IsZero() {
			return errors.New("b has not noticed")
		}
		return nil
	})
	if err := setKey(t, b, "before", "y", 2); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("set a key that another node has: %v", err)
	}
	if err := setKey(t, a, "meanwhile", "m", 3); err != nil {
		t.Errorf("set a free key: %v", err)
	}
	if err := setKey(t, b, "meanwhile", "y", 2); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("set a key that was set meanwhile: %v", err)
	}
	keySays(t, c, "meanwhile", 3)
	must(t, a.space.Cut(t.Context(), b.space))
	named(t, b, "mset", "other="+b.Path("host", "y"))
	must(t, a.space.Mend(t.Context(), b.space))
	must(t, w.etcd.Continue(t.Context()))
	recovered(t, nodes...)
	if err := setKey(t, b, "meanwhile", "y", 2); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("set a key that was set meanwhile, with etcd: %v", err)
	}
	for _, n := range nodes {
		keySays(t, n, "before", 1)
		keySays(t, n, "meanwhile", 3)
		if known := n.cluster(); known.Conflicts != 0 {
			t.Errorf("%s tells of conflicts: %+v", n.name, known.LastConflicts)
		}
	}
}
