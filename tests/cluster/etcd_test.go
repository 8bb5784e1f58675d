package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/etcdkit"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestEtcdAway stops etcd, starts it again, and wipes it: the nodes continue with what they
// know and report the failure, and afterwards all is as before.
func TestEtcdAway(t *testing.T) {
	w, nodes := newNodes(t, worldOptions{etcd: plainEtcd()})
	a, b, c := nodes[0], nodes[1], nodes[2]
	write(t, b.Path("sim0", "x"), 1, mib)
	w.etcd.Stop()
	for _, n := range nodes {
		kit.Eventually(t, patience, func() error {
			if n.cluster().State.UnreachableSince.IsZero() {
				return fmt.Errorf("%s has not noticed", n.name)
			}
			return nil
		})
		if text := hmcfs(t, n, "status", n.Dir); !strings.Contains(text, "etcd unreachable since") {
			t.Errorf("status of %s:\n%s", n.name, text)
		}
	}
	// Known nodes keep working, long after the lease would have ended.
	lasts(t, func() {
		write(t, a.Path("host", "local"), 2, mib)
		verify(t, a.Path("host", "local"), 2, mib)
		verify(t, a.at("b", "sim0", "x"), 1, mib)
		write(t, a.at("c", "sim0", "y"), 3, mib)
		verify(t, b.at("c", "sim0", "y"), 3, mib)
	})
	a.lists("b", "c")
	// A new node can't join, and reports why.
	out, err := a.space.Command(t.Context(), "hmcfs", w.mountArgs(t, "d")...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "etcd is needed to join") {
		t.Errorf("joining without etcd: %v %s", err, out)
	}
	// The death of a node in the meantime is noticed when etcd is back.
	c.Kill()
	must(t, w.etcd.Continue(t.Context()))
	recovered(t, a, b)
	a.lapsed("c")
	b.lapsed("c")
	c.restart()
	w.meet()
	write(t, c.Path("sim0", "z"), 4, mib)
	verify(t, a.at("c", "sim0", "z"), 4, mib)

	must(t, w.etcd.Wipe(t.Context()))
	recovered(t, nodes...)
	a.lists("b", "c")
	c.lists("a", "b")
	w.meet()
	verify(t, b.at("c", "sim0", "z"), 4, mib)
	// The name is recorded in etcd again.
	kit.Eventually(t, patience, func() error {
		out, err = a.space.Command(t.Context(), "hmcfs", w.mountArgs(t, "b")...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "name taken") {
			return fmt.Errorf("a second b behind a wiped etcd: %w %s", err, out)
		}
		return nil
	})
}

// lasts repeats something for longer than a lease, counted in rounds instead of by a clock: the
// shortest lease has ended after that many rounds.
func lasts(t *testing.T, do func()) {
	t.Helper()
	const rounds = 40
	for range rounds {
		do()
		kit.ClockTick(t)
	}
}

// recovered waits until nodes reach etcd again.
func recovered(t *testing.T, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		kit.Eventually(t, patience, func() error {
			if s := n.cluster().State; !s.UnreachableSince.IsZero() {
				return fmt.Errorf("%s: etcd unreachable since %v: %s", n.name, s.UnreachableSince, s.Problem)
			}
			return nil
		})
	}
}

// TestLeaseEnds kills a node: its keys are removed from keys/ when its lease has ended, and
// its files can't be read, which differs from not existing. It returns with another epoch, and
// its keys with it.
func TestLeaseEnds(t *testing.T) {
	_, nodes := newNodes(t, worldOptions{etcd: plainEtcd()})
	a, b := nodes[0], nodes[1]
	write(t, b.Path("host", "x"), 1, mib)
	must(t, unix.Setxattr(b.Path("host", "x"), "user.hmc.key", []byte("k1"), 0))
	kit.Eventually(t, patience, func() error { return check(a.Path("keys", "k1"), 1, mib) })
	epoch := a.epochOfB()
	b.Kill()
	a.lapsed("b")
	gone(t, a.Path("keys", "k1"))
	a.lists("b", "c")
	absent(t, a, "x")
	// Its key is free for others now.
	write(t, a.Path("host", "y"), 2, mib)
	must(t, unix.Setxattr(a.Path("host", "y"), "user.hmc.key", []byte("k2"), 0))
	b.restart()
	a.lists("b", "c")
	if now := a.epochOfB(); now <= epoch {
		t.Errorf("b's epoch was %d and is %d", epoch, now)
	}
	kit.Eventually(t, patience, func() error { return check(a.Path("keys", "k1"), 1, mib) })
	kit.Eventually(t, patience, func() error { return check(b.Path("keys", "k2"), 2, mib) })
}

// absent runs operations that take ENOENT as permission to continue, on a file of b, which is
// dead: all of them fail.
func absent(t *testing.T, a *node, name string) {
	t.Helper()
	path := a.at("b", "host", name)
	for what, do := range map[string]func() error{
		"stat":               func() error { _, err := os.Stat(path); return err },
		"remove":             func() error { return os.Remove(path) },
		"remove, forced":     func() error { return os.RemoveAll(path) },
		"create":             func() error { return os.WriteFile(path, []byte("x"), 0o600) },
		"make a directory":   func() error { return os.MkdirAll(a.at("b", "host", "d"), 0o700) },
		"list":               func() error { _, err := os.ReadDir(a.at("b")); return err },
		"list by a new node": func() error { _, err := try(t.Context(), "ls", a.at("b", "host")); return err },
	} {
		err := soon(t, what, do)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s on a node whose lease has ended: %v", what, err)
		}
	}
	if err := soon(t, "stat", func() error { _, err := os.Stat(path); return err }); !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("stat: %v", err)
	}
}

// TestForgetNode removes a dead node from the cluster: its names are removed for all nodes,
// including one that did not make the request.
func TestForgetNode(t *testing.T) {
	_, nodes := newNodes(t, worldOptions{etcd: plainEtcd()})
	a, b, c := nodes[0], nodes[1], nodes[2]
	if out, err := a.Run("nodes", "--forget", "b", a.Dir); err == nil || !strings.Contains(err.Error(), "node b is connected") {
		t.Errorf("forgetting a node that is there: %v %s", err, out)
	}
	b.Kill()
	a.lapsed("b")
	_, err := a.Run("nodes", "--forget", "b", a.Dir)
	must(t, err)
	a.lists("c")
	c.lists("a")
	gone(t, c.at("b"))
	b.restart()
	c.lists("a", "b")
}

// TestKeep unmounts a node with --keep and mounts it again: its host files and keys exist
// again, for all nodes, in another incarnation.
func TestKeep(t *testing.T) {
	_, nodes := newNodes(t, worldOptions{machines: 2, etcd: plainEtcd()})
	a, b := nodes[0], nodes[1]
	write(t, b.Path("host", "x"), 1, mib)
	must(t, unix.Setxattr(b.Path("host", "x"), "user.hmc.key", []byte("kept"), 0))
	kit.Eventually(t, patience, func() error { return check(a.Path("keys", "kept"), 1, mib) })
	epoch := a.epochOfB()
	b.Umount("--keep")
	a.lists()
	gone(t, a.Path("keys", "kept"))
	b.restart()
	a.lists("b")
	if now := a.epochOfB(); now <= epoch {
		t.Errorf("b's epoch was %d and is %d", epoch, now)
	}
	kit.Eventually(t, patience, func() error { return check(a.at("b", "host", "x"), 1, mib) })
	kit.Eventually(t, patience, func() error { return check(a.Path("keys", "kept"), 1, mib) })
}

// TestNodeStopped stops a daemon, as can happen on a machine that is out of memory: requests
// to it fail by the deadline, no others wait, and it continues afterwards.
func TestNodeStopped(t *testing.T) {
	_, nodes := newNodes(t, worldOptions{etcd: plainEtcd()})
	a, b, c := nodes[0], nodes[1], nodes[2]
	write(t, b.Path("host", "x"), 1, mib)
	verify(t, a.at("b", "host", "x"), 1, mib)
	proceed := kit.Stop(t, b.PID())
	err := soon(t, "read", func() error { _, err := os.ReadFile(a.at("b", "host", "x")); return err })
	if !among(err, syscall.EIO, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, os.ErrNotExist) {
		t.Errorf("reading from a daemon that is stopped: %v", err)
	}
	write(t, a.at("c", "host", "y"), 2, mib)
	verify(t, c.Path("host", "y"), 2, mib)
	a.lapsed("b") // its lease has ended
	proceed()
	a.lists("b", "c")
	kit.Eventually(t, patience, func() error { return check(a.at("b", "host", "x"), 1, mib) })
}

// TestEtcdTLS joins an etcd that requires certificates and a password, and is refused without
// them.
func TestEtcdTLS(t *testing.T) {
	w := newWorld(t, worldOptions{machines: 2, here: true, etcd: &etcdkit.Options{TLS: true, Password: "secret word"}})
	password := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(password, []byte("secret word\n"), 0o600))
	files := w.etcd.Files()
	proofs := []string{"--etcd-ca", files.CA, "--etcd-cert", files.Cert, "--etcd-key", files.Key}
	user := []string{"--etcd-user", etcdkit.User, "--etcd-password-file", password}
	for name, flags := range map[string][]string{"nothing": nil, "no certificate": proofs[:2], "no password": proofs} {
		args := w.mountArgs(t, "a")
		args = slices.Insert(args, len(args)-2, flags...)
		out, err := try(context.WithoutCancel(t.Context()), "hmcfs", args...)
		if err == nil || !strings.Contains(err.Error(), "hmcfs: node a: ") {
			t.Errorf("with %s: %v %s", name, err, out)
		}
		t.Logf("with %s: %v", name, err)
	}
	w.opts.extra = slices.Concat(proofs, user)
	a, b := w.mount("a", 0), w.mount("b", 1)
	w.meet()
	verifyAlive(t, a, b)
}

// TestOneMachine checks that nodes of one machine share memory.
func TestOneMachine(t *testing.T) {
	specs, names := devicesOf(t)
	w, nodes := newNodes(t, worldOptions{machines: 2, here: true, devices: specs, etcd: plainEtcd()})
	a, b := nodes[0], nodes[1]
	for _, d := range names {
		write(t, b.Path(d, "x"), 1, bigSize)
		run(t, "cp", a.at("b", d, "x"), a.Path(d, "y"))
		verify(t, a.Path(d, "y"), 1, bigSize)
		if got := way(t, a.Path(d, "y")); got != "shm" {
			t.Errorf("%s to %s of one machine by %q, want shm", d, d, got)
		}
		run(t, "cp", a.Path(d, "y"), a.at("b", d, "z"))
		verify(t, b.Path(d, "z"), 1, bigSize)
		if got := way(t, b.Path(d, "z")); got != "shm" {
			t.Errorf("back to %s by %q, want shm", d, got)
		}
	}
	if n := a.cluster().Nodes[0]; n.Transport != "shm" {
		t.Errorf("node %+v", n)
	}
	// A killed daemon leaves its socket, which does no harm.
	b.Kill()
	b.restart()
	kit.Eventually(t, patience, func() error { return a.reaches("b") })
	verifyAlive(t, a, b)
	for _, n := range w.nodes {
		n.Umount()
		if left, err := filepath.Glob(filepath.Join(n.RuntimeDir, "*")); err != nil || len(left) > 0 {
			t.Errorf("%s leaves %q, %v", n.name, left, err)
		}
	}
}

// TestStaticList runs two machines without etcd, one of which starts late.
func TestStaticList(t *testing.T) {
	w := newWorld(t, worldOptions{machines: 2})
	a := w.mount("a", 0)
	a.lists("b")
	err := soon(t, "ls", func() error { _, err := os.ReadDir(a.at("b")); return err })
	if !among(err, syscall.EHOSTUNREACH, syscall.EIO, syscall.ETIMEDOUT) {
		t.Errorf("a node that is not there yet: %v", err)
	}
	b := w.mount("b", 1)
	w.meet()
	verifyAlive(t, a, b)
	verifyAlive(t, b, a)
	known := a.cluster()
	if known.State.Backend != "static" || known.Nodes[0].Epoch == 0 || len(known.Nodes[0].Devices) != 2 {
		t.Errorf("hmcfs nodes: %+v", known)
	}
	// Without an index of keys the nodes are asked.
	write(t, b.Path("sim0", "k"), 5, mib)
	must(t, unix.Setxattr(b.Path("sim0", "k"), "user.hmc.key", []byte("static-key"), 0))
	kit.Eventually(t, patience, func() error { return check(a.Path("keys", "static-key"), 5, mib) })
	b.Kill()
	err = soon(t, "ls", func() error { return a.reaches("b") })
	if err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("a node that was killed: %v", err)
	}
	b.restart()
	kit.Eventually(t, patience, func() error { return a.reaches("b") })
	verifyAlive(t, a, b)
}
