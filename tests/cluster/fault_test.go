package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/netns"
)

// slowRate makes a copy of bigSize take some seconds.
const slowRate = "60mbit"

// crawlRate makes it take longer than many small copies, but each of its requests less than
// the timeout of the tests' nodes.
const crawlRate = "25mbit"

// copying is a running cp.
type copying struct {
	from, to string
	done     chan error
}

// enough is the number of bytes of bigSize after which a copy counts as in its middle.
const enough = 3 * mib

// beginCopy starts a copy and returns when it is in its middle, as measured by the bytes that
// the sending node has sent.
func beginCopy(t *testing.T, sender *node, from, to string) *copying {
	t.Helper()
	before, err := sender.space.Sent(t.Context())
	must(t, err)
	c := &copying{from: from, to: to, done: make(chan error, 1)}
	ctx := context.WithoutCancel(t.Context())
	go func() {
		_, err := try(ctx, "cp", from, to)
		c.done <- err
	}()
	kit.Eventually(t, patience, func() error {
		now, err := sender.space.Sent(t.Context())
		if err == nil && now < before+enough {
			err = fmt.Errorf("%s has sent %d bytes", sender.name, now-before)
		}
		return err
	})
	return c
}

// breaks waits for the copy to fail.
func (c *copying) breaks(t *testing.T) {
	t.Helper()
	if err := soon(t, "cp", func() error { return <-c.done }); err == nil {
		t.Error("the copy says that it is whole")
	}
}

// cutBy returns the ways to make a node unreachable for another one, and to restore it.
func cutBy() map[string][2]func(t *testing.T, n *node) {
	space := func(do func(*netns.Space, context.Context) error) func(*testing.T, *node) {
		return func(t *testing.T, n *node) {
			t.Helper()
			must(t, do(n.space, t.Context()))
		}
	}
	return map[string][2]func(*testing.T, *node){
		"killed":   {func(_ *testing.T, n *node) { n.Kill() }, func(_ *testing.T, n *node) { n.restart() }},
		"pulled":   {space((*netns.Space).Pull), space((*netns.Space).Plug)},
		"vanished": {space((*netns.Space).Vanish), space((*netns.Space).Plug)},
	}
}

// TestPeerGone makes a node unreachable in the middle of a copy from it, and to it: the copy
// fails, the bytes that were copied are right, nothing hangs, and when the node is back
// everything works again, without a remount.
func TestPeerGone(t *testing.T) {
	for name, how := range cutBy() {
		for _, way := range []string{"from", "to"} {
			t.Run(name+" "+way, func(t *testing.T) { peerGone(t, way == "from", how) })
		}
	}
}

func peerGone(t *testing.T, from bool, how [2]func(*testing.T, *node)) {
	_, nodes := newNodes(t, worldOptions{etcd: plainEtcd()})
	a, b, c := nodes[0], nodes[1], nodes[2]
	epoch := a.epochOfB()
	write(t, b.Path("host", "kept"), 1, 3*mib)
	source, target := b.Path("host", "big"), a.Path("sim0", "big")
	sender, cpFrom, cpTo := b, a.at("b", "host", "big"), target
	if !from {
		source, target = a.Path("sim0", "big"), b.Path("host", "big")
		sender, cpFrom, cpTo = a, source, a.at("b", "host", "big")
	}
	write(t, source, 5, bigSize)
	must(t, a.space.Slow(t.Context(), slowRate))
	must(t, b.space.Slow(t.Context(), slowRate))
	copying := beginCopy(t, sender, cpFrom, cpTo)
	how[0](t, b)
	copying.breaks(t)
	// Access to b is an error, at once or by the deadline, and never blocks forever.
	for _, path := range []string{a.at("b"), a.at("b", "host"), a.at("b", "host", "kept"), a.at("b", "sim0", "none")} {
		err := soon(t, "ls", func() error { _, err := try(context.WithoutCancel(t.Context()), "ls", "-l", path); return err })
		if err == nil {
			t.Logf("ls -l %s of a node that is gone still answers", path)
		}
	}
	a.lists("b", "c")
	// All other nodes work as before.
	write(t, a.at("c", "sim0", "meanwhile"), 6, 2*mib)
	verify(t, c.Path("sim0", "meanwhile"), 6, 2*mib)
	write(t, a.Path("host", "meanwhile"), 7, 2*mib)
	verify(t, a.Path("host", "meanwhile"), 7, 2*mib)

	how[1](t, b)
	must(t, a.space.Slow(t.Context(), ""))
	must(t, b.space.Slow(t.Context(), ""))
	a.lists("b", "c")
	kit.Eventually(t, patience, func() error { return a.reaches("b") })
	if now := a.epochOfB(); now < epoch || (now == epoch) == b.restarted {
		t.Errorf("b's epoch was %d and is %d; started again: %t", epoch, now, b.restarted)
	}
	n, err := prefix(target, 5)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is left of the copy: %v", err)
	}
	t.Logf("%d of %d bytes were left", n, bigSize)
	verify(t, a.at("b", "host", "kept"), 1, 3*mib)
	run(t, "cp", cpFrom, cpTo)
	verify(t, target, 5, bigSize)
	verify(t, cpTo, 5, bigSize)
}

// restart mounts a killed node again.
func (n *node) restart() {
	n.restarted = true
	n.Start()
}

// epochOfB returns b's incarnation as known to the node.
func (n *node) epochOfB() members.Epoch {
	for _, other := range n.cluster().Nodes {
		if other.Name == "b" {
			return other.Epoch
		}
	}
	return 0
}

// TestPairCut cuts two nodes off from each other, but not from etcd or the third node: each
// still reaches the third, and they reach each other again later.
func TestPairCut(t *testing.T) {
	_, nodes := newNodes(t, worldOptions{etcd: plainEtcd()})
	a, b, c := nodes[0], nodes[1], nodes[2]
	write(t, b.Path("sim0", "x"), 1, mib)
	verify(t, a.at("b", "sim0", "x"), 1, mib)
	must(t, a.space.Cut(t.Context(), b.space))
	err := soon(t, "read", func() error { _, err := os.ReadFile(a.at("b", "sim0", "x")); return err })
	if !among(err, syscall.EIO, syscall.ETIMEDOUT, syscall.EHOSTUNREACH) {
		t.Errorf("reading from a node that is cut off: %v", err)
	}
	// It is still a member, and all other nodes reach it.
	a.lists("b", "c")
	verify(t, c.at("b", "sim0", "x"), 1, mib)
	write(t, a.at("c", "sim0", "y"), 2, mib)
	verify(t, b.at("c", "sim0", "y"), 2, mib)
	kit.Eventually(t, patience, func() error {
		_ = soon(t, "ls", func() error { return a.reaches("b") }) // triggers an attempt to connect
		if problemOf(a, "b") == "" {
			return errors.New("hmcfs nodes tells no problem of b")
		}
		return nil
	})
	must(t, a.space.Mend(t.Context(), b.space))
	kit.Eventually(t, patience, func() error { return check(a.at("b", "sim0", "x"), 1, mib) })
	if problem := problemOf(a, "b"); problem != "" {
		t.Errorf("hmcfs nodes still tells of b: %s", problem)
	}
}

func problemOf(n *node, name members.Name) string {
	for _, other := range n.cluster().Nodes {
		if other.Name == name {
			return other.Problem
		}
	}
	return "it is not there"
}

// TestOpenFileLivesOn has a file open while its node is cut off: reads fail, and succeed again
// when the node is back. After a new incarnation of the node has joined, the file is stale.
func TestOpenFileLivesOn(t *testing.T) {
	_, nodes := newNodes(t, worldOptions{machines: 2, etcd: plainEtcd()})
	a, b := nodes[0], nodes[1]
	write(t, b.Path("host", "x"), 1, mib)
	f, err := os.Open(a.at("b", "host", "x"))
	must(t, err)
	defer func() { _ = f.Close() }() // the file was only read
	p := make([]byte, 4096)
	_, err = f.ReadAt(p, 0)
	must(t, err)
	must(t, b.space.Pull(t.Context()))
	read := func() error { _, rerr := f.ReadAt(p, mib/2); return rerr }
	if err = soon(t, "read", read); err == nil {
		t.Error("a read from a node that is cut off succeeds")
	}
	must(t, b.space.Plug(t.Context()))
	kit.Eventually(t, patience, read)
	if at := kit.DiffAt(p, 1, mib/2); at >= 0 {
		t.Errorf("byte %d of the file that was open is wrong", at)
	}
	b.Kill()
	b.restart()
	kit.Eventually(t, patience, func() error { return check(a.at("b", "host", "x"), 1, mib) })
	if _, err = f.ReadAt(p, 0); !among(err, syscall.ESTALE, syscall.EIO) {
		t.Errorf("a file of an incarnation that is gone: %v", err)
	}
}

// TestSlowPeer copies from a slow node: everything else continues.
func TestSlowPeer(t *testing.T) {
	_, nodes := newNodes(t, worldOptions{etcd: plainEtcd(), flags: slowNode})
	a, b, c := nodes[0], nodes[1], nodes[2]
	write(t, c.Path("sim0", "x"), 1, bigSize)
	write(t, b.Path("sim0", "y"), 2, mib)
	must(t, c.space.Slow(t.Context(), crawlRate))
	slow := beginCopy(t, c, a.at("c", "sim0", "x"), a.Path("sim0", "x"))
	for i := range 5 {
		to := a.Path("sim0", fmt.Sprintf("y%d", i%2))
		run(t, "cp", a.at("b", "sim0", "y"), to)
		verify(t, to, 2, mib)
		run(t, "ls", "-l", a.Path("sim0"), a.at("b", "sim0"))
		select {
		case err := <-slow.done:
			t.Fatalf("after %d copies from the fast node the one from the slow node has ended: %v", i, err)
		default:
		}
	}
	must(t, c.space.Slow(t.Context(), ""))
	must(t, soon(t, "the slow copy", func() error { return <-slow.done }))
	verify(t, a.Path("sim0", "x"), 1, bigSize)
}
