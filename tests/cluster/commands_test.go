package cluster

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/tests/kit"
)

const mib = 1 << 20

// bigSize is not a multiple of any unit in which bytes are moved.
const bigSize = 20*mib + 12345

// devicesOf returns directories of every kind of device that a machine of the tests has.
func devicesOf(t *testing.T) (specs, names []string) {
	t.Helper()
	specs = []string{"host,size=256MiB", "sim:0,size=256MiB"}
	names = []string{"host", "sim0"}
	if kit.Missing("opencl") == nil {
		specs, names = append(specs, "opencl:0,size=256MiB"), append(names, "ocl0")
	}
	return specs, names
}

// TestCommands uses three machines and etcd as a user does.
func TestCommands(t *testing.T) {
	specs, names := devicesOf(t)
	w, nodes := newNodes(t, worldOptions{etcd: plainEtcd(), devices: specs})
	a, b, c := nodes[0], nodes[1], nodes[2]
	all := &commands{w: w, a: a, b: b, c: c, devices: names}
	for _, s := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"the tree", all.tree},
		{"copies to and from", all.copies},
		{"between two others", all.third},
		{"moves", all.moves},
		{"names and attributes", all.attributes},
		{"keys", all.keys},
		{"publish and subscribe", all.publications},
		{"status and nodes", all.status},
	} {
		t.Run(s.name, s.do)
	}
}

// commands runs the parts of TestCommands on three nodes.
type commands struct {
	w       *world
	a, b, c *node
	devices []string
}

// tree checks which names exist where.
func (k *commands) tree(t *testing.T) {
	k.a.lists("b", "c")
	k.b.lists("a", "c")
	for _, dir := range []string{k.b.Dir, k.a.at("b")} {
		out := strings.Fields(run(t, "ls", dir))
		for _, d := range k.devices {
			if !slices.Contains(out, d) {
				t.Errorf("ls %s: %q lacks %s", dir, out, d)
			}
		}
	}
	if out := strings.Fields(run(t, "ls", k.a.at("b"))); len(out) != len(k.devices) {
		t.Errorf("another node shows %q, want devices alone: %q", out, k.devices)
	}
	for _, path := range []string{k.a.at("nobody"), k.a.at("b", "nothing"), k.a.at("b", "sim0", "nothing")} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{k.a.Path("nodes", "x"), k.a.at("b", "x")} {
		if err := os.Mkdir(path, 0o755); !among(err, syscall.EPERM, syscall.EACCES) {
			t.Errorf("mkdir %s: %v", path, err)
		}
	}
	here, there := run(t, "df", "--output=size", k.b.Path("sim0")), run(t, "df", "--output=size", k.a.at("b", "sim0"))
	if here != there {
		t.Errorf("df of b's sim0: %q on b, %q on a", here, there)
	}
}

// copies moves bytes between every device of a and every device of b.
func (k *commands) copies(t *testing.T) {
	for i, mine := range k.devices {
		for j, theirs := range k.devices {
			seed := uint64(100*i + j)
			from := k.b.Path(theirs, fmt.Sprintf("from-%s", mine))
			write(t, from, seed, bigSize)
			to := k.a.Path(mine, fmt.Sprintf("from-b-%s", theirs))
			run(t, "cp", k.a.at("b", theirs, filepath.Base(from)), to)
			verify(t, to, seed, bigSize)
			if got := way(t, to); got != "tcp" {
				t.Errorf("from b's %s to a's %s by %q, want tcp", theirs, mine, got)
			}
			back := k.a.at("b", theirs, fmt.Sprintf("back-from-%s", mine))
			run(t, "cp", to, back)
			verify(t, k.b.Path(theirs, filepath.Base(back)), seed, bigSize)
			if got := way(t, back); got != "tcp" {
				t.Errorf("from a's %s to b's %s by %q, want tcp", mine, theirs, got)
			}
			verify(t, back, seed, bigSize)
			for _, path := range []string{from, to, back} {
				must(t, os.Remove(path))
			}
		}
	}
	// From outside the mount, and to it.
	outside := filepath.Join(t.TempDir(), "w.safetensors")
	write(t, outside, 7, bigSize)
	for _, d := range k.devices {
		run(t, "cp", outside, k.a.at("b", d, "w"))
		verify(t, k.b.Path(d, "w"), 7, bigSize)
		run(t, "cp", k.a.at("b", d, "w"), outside+".back")
		verify(t, outside+".back", 7, bigSize)
		if _, err := k.a.Run("cp", k.a.at("b", d, "w"), k.a.at("b", d, "again")); err != nil {
			t.Error(err)
		}
		verify(t, k.b.Path(d, "again"), 7, bigSize)
		if out, err := k.a.Run("cp", k.a.at("b", d, "w"), outside+".told"); err != nil || !strings.HasSuffix(strings.TrimSpace(out), "B/s") {
			t.Errorf("out of b's %s: %v %q, want no way of this machine", d, err, out)
		}
		must(t, os.Remove(k.a.at("b", d, "w")))
		must(t, os.Remove(k.b.Path(d, "again")))
	}
}

// third copies between two other nodes: the bytes do not pass through this one.
func (k *commands) third(t *testing.T) {
	write(t, k.b.Path("sim0", "x"), 9, bigSize)
	before := k.a.cluster().Traffic
	run(t, "cp", k.a.at("b", "sim0", "x"), k.a.at("c", "sim0", "x"))
	after := k.a.cluster().Traffic
	verify(t, k.c.Path("sim0", "x"), 9, bigSize)
	if n := after.BytesIn + after.BytesOut - before.BytesIn - before.BytesOut; n >= bigSize/2 {
		t.Errorf("%d bytes came by the node that asked", n)
	}
	if got := way(t, k.a.at("c", "sim0", "x")); got != "tcp" {
		t.Errorf("from b to c by %q", got)
	}
	// Within one node its own devices copy.
	run(t, "cp", k.a.at("b", "sim0", "x"), k.a.at("b", "sim0", "y"))
	verify(t, k.b.Path("sim0", "y"), 9, bigSize)
	if got := way(t, k.b.Path("sim0", "y")); got != "d2d" {
		t.Errorf("on b by %q", got)
	}
	for _, path := range []string{k.a.at("b", "sim0", "x"), k.a.at("b", "sim0", "y"), k.a.at("c", "sim0", "x")} {
		must(t, os.Remove(path))
	}
}

// moves runs mv in both directions.
func (k *commands) moves(t *testing.T) {
	write(t, k.a.Path("sim0", "t"), 11, bigSize)
	if err := os.Rename(k.a.Path("sim0", "t"), k.a.at("b", "sim0", "t")); !errors.Is(err, syscall.EXDEV) {
		t.Errorf("rename between nodes: %v", err)
	}
	run(t, "mv", k.a.Path("sim0", "t"), k.a.at("b", "sim0", "t"))
	if _, err := os.Stat(k.a.Path("sim0", "t")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was moved is still there: %v", err)
	}
	verify(t, k.b.Path("sim0", "t"), 11, bigSize)
	// Inside b it is one rename, even between devices.
	must(t, os.Rename(k.a.at("b", "sim0", "t"), k.a.at("b", "host", "u")))
	verify(t, k.b.Path("host", "u"), 11, bigSize)
	run(t, "mv", k.a.at("b", "host", "u"), k.a.at("c", "host", "u"))
	verify(t, k.c.Path("host", "u"), 11, bigSize)
	run(t, "mv", k.a.at("c", "host", "u"), k.a.Path("host", "u"))
	verify(t, k.a.Path("host", "u"), 11, bigSize)
	must(t, os.Remove(k.a.Path("host", "u")))
}

// attributes runs the POSIX operations on names, from another node.
func (k *commands) attributes(t *testing.T) {
	dir := k.a.at("b", "sim0", "d")
	must(t, os.MkdirAll(filepath.Join(dir, "e", "f"), 0o750))
	write(t, filepath.Join(dir, "x"), 1, 1000)
	must(t, os.Chmod(filepath.Join(dir, "x"), 0o640))
	must(t, os.Chown(filepath.Join(dir, "x"), 1234, 5678))
	must(t, os.Link(filepath.Join(dir, "x"), filepath.Join(dir, "y")))
	must(t, os.Symlink("x", filepath.Join(dir, "z")))
	must(t, os.Truncate(filepath.Join(dir, "x"), 500))
	must(t, unix.Setxattr(filepath.Join(dir, "x"), "user.color", []byte("blue"), 0))
	var st unix.Stat_t
	must(t, unix.Stat(k.b.Path("sim0", "d", "z"), &st))
	if st.Size != 500 || st.Mode&0o7777 != 0o640 || st.Uid != 1234 || st.Gid != 5678 || st.Nlink != 2 {
		t.Errorf("on b: %+v", st)
	}
	p := make([]byte, 16)
	n, err := unix.Getxattr(k.b.Path("sim0", "d", "y"), "user.color", p)
	if err != nil || string(p[:n]) != "blue" {
		t.Errorf("user.color on b is %q, %v", p[:max(n, 0)], err)
	}
	if out := strings.Fields(run(t, "ls", "-A", dir)); !slices.Equal(out, []string{"e", "x", "y", "z"}) {
		t.Errorf("ls: %q", out)
	}
	if err := os.Remove(filepath.Join(dir, "e")); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("rmdir of what is not empty: %v", err)
	}
	// a sees b's changes.
	must(t, os.Rename(k.b.Path("sim0", "d", "x"), k.b.Path("sim0", "d", "w")))
	must(t, os.Truncate(k.b.Path("sim0", "d", "w"), 7))
	kit.Eventually(t, patience, func() error {
		st, err := os.Stat(filepath.Join(dir, "w"))
		if err == nil && st.Size() != 7 {
			err = fmt.Errorf("w has %d bytes on a", st.Size())
		}
		return err
	})
	run(t, "rm", "-r", dir)
	gone(t, k.b.Path("sim0", "d"))
}

// gone waits until a path no longer exists: a kernel may cache it for a second.
func gone(t testing.TB, path string) {
	t.Helper()
	kit.Eventually(t, patience, func() error {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is still there: %w", path, err)
		}
		return nil
	})
}

// keys finds objects by their keys, wherever they are.
func (k *commands) keys(t *testing.T) {
	write(t, k.b.Path("sim0", "llama"), 21, bigSize)
	must(t, unix.Setxattr(k.b.Path("sim0", "llama"), "user.hmc.key", []byte("llama-w0"), 0))
	want := fmt.Sprintf("%x", sha256.Sum256(kit.Bytes(21, 0, bigSize)))
	for _, n := range []*node{k.a, k.b, k.c} {
		kit.Eventually(t, patience, func() error { _, err := os.Stat(n.Path("keys", "llama-w0")); return err })
		if out := run(t, "sha256sum", n.Path("keys", "llama-w0")); !strings.HasPrefix(out, want) {
			t.Errorf("on %s: %s", n.name, out)
		}
		if out := strings.Fields(run(t, "ls", n.Path("keys"))); !slices.Contains(out, "llama-w0") {
			t.Errorf("keys on %s: %q", n.name, out)
		}
	}
	if to, err := os.Readlink(k.a.Path("keys", "llama-w0")); err != nil || to != "../nodes/b/sim0/llama" {
		t.Errorf("the key leads to %q, %v", to, err)
	}
	// No other node can set it.
	write(t, k.a.Path("sim0", "mine"), 22, 100)
	if err := unix.Setxattr(k.a.Path("sim0", "mine"), "user.hmc.key", []byte("llama-w0"), 0); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("a key that b has: %v", err)
	}
	// hmcfs commands, from a node that does not have the key.
	if _, err := k.c.Run("h2d", "llama-w0="+k.c.Path("sim0", "copy")); err != nil {
		t.Error(err)
	} else {
		verify(t, k.c.Path("sim0", "copy"), 21, bigSize)
	}
	outside := filepath.Join(t.TempDir(), "w")
	if _, err := k.a.Run("mget", "--mount", k.a.Dir, "llama-w0="+outside); err != nil {
		t.Error(err)
	} else {
		verify(t, outside, 21, bigSize)
	}
	if out := hmcfs(t, k.a, "ls-keys", "--mount", k.a.Dir); !strings.Contains(out, "llama-w0") {
		t.Errorf("ls-keys: %s", out)
	}
	if _, err := k.c.Run("wait", "--mount", k.c.Dir, "llama-w0"); err != nil {
		t.Error(err)
	}
	if _, err := k.c.Run("exist", "--mount", k.c.Dir, "llama-w0"); err != nil {
		t.Error(err)
	}
	if _, err := k.a.Run("del", "--mount", k.a.Dir, "llama-w0"); err != nil {
		t.Error(err)
	}
	gone(t, k.c.Path("keys", "llama-w0"))
	k.tensorKeys(t)
}

// publications are received once, on another node.
func (k *commands) publications(t *testing.T) {
	write(t, k.b.Path("sim0", "hand"), 31, bigSize)
	if out, err := k.b.Run("publish", "hand="+k.b.Path("sim0", "hand")); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if out, err := k.c.Run("subscribe", "--mount", k.c.Dir, "--timeout", "30s", "hand="+k.c.Path("sim0", "got")); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	verify(t, k.c.Path("sim0", "got"), 31, bigSize)
	for _, n := range []*node{k.a, k.b, k.c} {
		gone(t, n.Path("publish", "hand"))
	}
	if out, err := k.a.Run("subscribe", "--mount", k.a.Dir, "--timeout", "1s", "hand="+k.a.Path("sim0", "second")); err == nil {
		t.Errorf("received twice: %s", out)
	}
	// A receiver that already waits gets it.
	done := make(chan error, 1)
	go func() {
		_, err := k.a.Run("subscribe", "--mount", k.a.Dir, "--timeout", "60s", "later="+k.a.Path("sim0", "later"))
		done <- err
	}()
	write(t, k.c.Path("sim0", "later"), 32, 4*mib)
	if out, err := k.c.Run("publish", "later="+k.c.Path("sim0", "later")); err != nil {
		t.Errorf("%v %s", err, out)
	}
	must(t, soon(t, "subscribe", func() error { return <-done }))
	verify(t, k.a.Path("sim0", "later"), 32, 4*mib)
}

// status returns the node's own status and its status of the others.
func (k *commands) status(t *testing.T) {
	known := k.a.cluster()
	if known.Name != "lab" || known.Self.Name != "a" || known.State.Backend != "etcd" || !known.State.UnreachableSince.IsZero() {
		t.Errorf("the cluster: %+v", known)
	}
	names := []members.Name{}
	for _, n := range known.Nodes {
		names = append(names, n.Name)
		if !n.Connected || n.Transport != "tcp" || len(n.Devices) != len(k.devices) || n.Epoch == 0 {
			t.Errorf("node %+v", n)
		}
	}
	if !slices.Equal(names, []members.Name{"b", "c"}) {
		t.Errorf("nodes %q", names)
	}
	for _, text := range []string{hmcfs(t, k.a, "nodes", k.a.Dir), hmcfs(t, k.a, "status", k.a.Dir)} {
		if !strings.Contains(text, "connected") || !strings.Contains(text, "10.213.0.1:7070") {
			t.Errorf("it says:\n%s", text)
		}
	}
	st := k.a.Status()
	if st.Cluster == nil || st.Cluster.Traffic.Questions == 0 || st.Cluster.Traffic.BytesIn == 0 || st.Cluster.Traffic.BytesOut == 0 {
		t.Errorf("status: %+v", st.Cluster)
	}
	text, err := k.a.Client().Metrics(t.Context())
	if err != nil || !strings.Contains(text, `hmcfs_cluster_node_connected{node="b"} 1`) {
		t.Errorf("metrics: %v\n%s", err, text)
	}
	if data, err := os.ReadFile(k.a.Path(".hmcfs", "stats")); err != nil || !strings.Contains(string(data), `"cluster"`) {
		t.Errorf(".hmcfs/stats: %v", err)
	}
}

// hmcfs runs hmcfs.
func hmcfs(t *testing.T, n *node, args ...string) string {
	t.Helper()
	out, err := n.Run(args...)
	must(t, err)
	return out
}

// tensorKeys reads the key of a tensor on another node.
func (k *commands) tensorKeys(t *testing.T) {
	const n = 300_001
	head := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d,)}\n", n)
	file := k.b.Path("sim0", "t.npy")
	must(t, os.WriteFile(file, slices.Concat([]byte{0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, byte(len(head)), 0}, []byte(head), kit.Bytes(23, 0, n)), 0o600))
	must(t, unix.Setxattr(file+".tensors/t.npy", "user.hmc.key", []byte("wte"), 0))
	kit.Eventually(t, patience, func() error { _, err := k.a.Run("exist", "--mount", k.a.Dir, "wte"); return err })
	if _, err := k.a.Run("h2d", "wte="+k.a.Path("sim0", "wte")); err != nil {
		t.Error(err)
	} else {
		verify(t, k.a.Path("sim0", "wte"), 23, n)
	}
	if _, err := k.a.Run("mget", "--mount", k.a.Dir, "wte="+filepath.Join(t.TempDir(), "x")); err == nil || !strings.Contains(err.Error(), "hmcfs h2d copies it") {
		t.Errorf("mget of a tensor of another node: %v", err)
	}
	if err := unix.Setxattr(k.a.Path("sim0", "mine"), "user.hmc.key", []byte("wte"), 0); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("a key that a tensor on b has: %v", err)
	}
	if _, err := k.a.Run("del", "--mount", k.a.Dir, "wte"); err != nil {
		t.Error(err)
	}
	gone(t, k.c.Path("keys", "wte"))
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}
