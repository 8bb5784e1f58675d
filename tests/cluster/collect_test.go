package cluster

import (
	"bytes"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// numbers returns count int32 of a rank: index + 10 × rank.
func numbers(rank, count int) []byte {
	p := make([]byte, 4*count)
	for i := range count {
		binary.LittleEndian.PutUint32(p[4*i:], uint32(i+10*rank))
	}
	return p
}

// sums returns the sums of the numbers of n ranks.
func sums(n, count int) []byte {
	p := make([]byte, 4*count)
	for i := range count {
		binary.LittleEndian.PutUint32(p[4*i:], uint32(n*i+10*n*(n-1)/2))
	}
	return p
}

func same(t testing.TB, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, want %d; differ at %d", path, len(got), len(want), kit.FirstDiff(got, want))
	}
}

// TestCollectives runs collectives on files of three machines.
func TestCollectives(t *testing.T) {
	_, nodes := newNodes(t, worldOptions{})
	collectives(t, nodes)
}

// TestCollectivesOverTLS lets the machines authenticate each other by certificates.
func TestCollectivesOverTLS(t *testing.T) {
	ca := newAuthority(t)
	for _, name := range []string{"a", "b", "c"} {
		ca.sign(name, func(c *x509.Certificate) { c.DNSNames = []string{name} })
	}
	w := newWorld(t, worldOptions{flags: ca.flags})
	w.secret = ""
	for i := range w.at {
		w.mount(nodeName(i), i)
	}
	w.meet()
	collectives(t, w.nodes)
}

func collectives(t *testing.T, nodes []*node) {
	t.Helper()
	const count = 1_000_003
	a, b, c := nodes[0], nodes[1], nodes[2]
	paths := []string{a.Path("sim0", "x"), a.at("b", "sim0", "x"), a.at("c", "host", "x"), a.at("b", "host", "x")}
	there := []string{a.Path("sim0", "x"), b.Path("sim0", "x"), c.Path("host", "x"), b.Path("host", "x")}
	fill := func() {
		for rank, path := range there {
			must(t, os.WriteFile(path, numbers(rank, count), 0o644))
			must(t, unix.Setxattr(path, "user.hmc.dtype", []byte("int32"), 0))
		}
	}
	fill()
	collective := func(args ...string) string {
		t.Helper()
		out, err := a.Run(args...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return out
	}
	out := collective(append([]string{"allreduce"}, paths...)...)
	if !strings.Contains(out, "on 3 nodes by ") || !strings.Contains(out, "between the nodes") {
		t.Errorf("it says %q", out)
	}
	for _, path := range there {
		same(t, path, sums(4, count))
	}
	collective(append([]string{"verify"}, paths...)...)

	// The two files of b and c, requested by a, through which their bytes do not pass.
	fill()
	before := a.cluster().Traffic
	collective("reduce", "--root", "1", "--out", a.at("c", "sim0", "sum"), paths[1], paths[2])
	after := a.cluster().Traffic
	if n := after.BytesIn + after.BytesOut - before.BytesIn - before.BytesOut; n > count {
		t.Errorf("%d bytes came by the node that asked", n)
	}
	want := make([]byte, 4*count)
	for i := range count {
		binary.LittleEndian.PutUint32(want[4*i:], uint32(2*i+30))
	}
	same(t, c.Path("sim0", "sum"), want)
	same(t, there[1], numbers(1, count))

	collective("allgather", "--out", a.Path("host", "all"), "--out", a.at("b", "sim0", "all"), paths[0], paths[1])
	for _, path := range []string{a.Path("host", "all"), b.Path("sim0", "all")} {
		same(t, path, append(numbers(0, count), numbers(1, count)...))
	}
	collective("broadcast", "--out", a.at("b", "sim0", "w"), "--out", a.at("c", "sim0", "w"), paths[0])
	same(t, b.Path("sim0", "w"), numbers(0, count))
	same(t, c.Path("sim0", "w"), numbers(0, count))
	collective("reduce-scatter", paths[0], paths[1])
	half := (count + 1) / 2 * 4
	two := make([]byte, 4*count)
	for i := range count {
		binary.LittleEndian.PutUint32(two[4*i:], uint32(2*i+10))
	}
	same(t, there[0], two[:half])
	same(t, there[1], two[half:])

	// Files that differ are named, wherever they are.
	must(t, os.WriteFile(c.Path("sim0", "w"), append(numbers(0, count-1), 1, 2, 3, 4), 0o644))
	text, err := a.Run("verify", a.Path("host", "all"), a.at("b", "sim0", "all"))
	if err != nil || !strings.Contains(text, "2 files are equal") {
		t.Errorf("verify: %v, %s", err, text)
	}
	text, err = a.Run("verify", a.at("b", "sim0", "w"), a.at("c", "sim0", "w"))
	at := fmt.Sprintf("%s differs from %s: 1 block of 1.0 MiB, the first at byte %d", a.at("c", "sim0", "w"), a.at("b", "sim0", "w"), 3<<20)
	if err == nil || !strings.Contains(text, at) {
		t.Errorf("verify: %v, %s", err, text)
	}
}

// TestCollectiveOfADeadNode checks that a node that dies is named, and that the files of the
// others are unchanged.
func TestCollectiveOfADeadNode(t *testing.T) {
	const count = 16 << 20 / 4
	slow := "sim:0,size=256MiB,bandwidth=8MiB"
	_, nodes := newNodes(t, worldOptions{devices: []string{"host,size=256MiB", slow}})
	a, b, c := nodes[0], nodes[1], nodes[2]
	for rank, n := range nodes {
		must(t, os.WriteFile(n.Path("host", "x"), numbers(rank, count), 0o644))
	}
	done := make(chan error, 1)
	go func() {
		// The result goes to a slow device, so that there is time for the node to die.
		_, err := a.Run("reduce", "--dtype", "i32", "--out", a.Path("sim0", "sum"), a.Path("host", "x"), a.at("b", "host", "x"), a.at("c", "host", "x"))
		done <- err
	}()
	kit.Eventually(t, patience, func() error {
		if a.Device("sim0").Used == 0 {
			return errors.New("it has not begun")
		}
		return nil
	})
	c.Kill()
	err := soon(t, "the collective", func() error { return <-done })
	if err == nil {
		t.Fatal("a collective without one of its nodes")
	}
	if text := err.Error(); !strings.Contains(text, "node") || !strings.Contains(text, "c") {
		t.Errorf("the error does not name the node: %v", err)
	}
	same(t, a.Path("host", "x"), numbers(0, count))
	same(t, b.Path("host", "x"), numbers(1, count))
	if _, err := os.Stat(a.Path("sim0", "sum")); err == nil {
		t.Error("there is a result")
	}
}

// TestKillNodeWhileCommitting kills the daemon of a node at the moment when it copies its
// result to a file of host/: the error names the node unless the collective had already ended,
// and the next daemon completes what this one has started.
func TestKillNodeWhileCommitting(t *testing.T) {
	const count = 48 << 20 / 4
	_, nodes := newNodes(t, worldOptions{machines: 2})
	a, b := nodes[0], nodes[1]
	for i := range 6 {
		for rank, n := range nodes {
			must(t, os.WriteFile(n.Path("host", "x"), numbers(rank+1, count), 0o644))
		}
		middle := killInCommit(t, a, b, count)
		b.restart()
		kit.Eventually(t, patience, func() error { return a.reaches("b") })
		want := make([]byte, 4*count)
		for i := range count {
			binary.LittleEndian.PutUint32(want[4*i:], uint32(2*i+30))
		}
		same(t, a.Path("host", "x"), want)
		same(t, b.Path("host", "x"), want)
		same(t, a.at("b", "host", "x"), want)
		if t.Failed() || middle {
			return
		}
		t.Logf("try %d: the daemon was not killed in the middle", i)
	}
}

// killInCommit runs an all-reduce of a file of each node, kills the daemon of b when its file
// starts to change, and reports whether the daemon was in the middle of it.
func killInCommit(t *testing.T, a, b *node, count int) (middle bool) {
	t.Helper()
	f, err := os.Open(b.Path("host", "x"))
	must(t, err)
	defer func() { _ = f.Close() }() // the daemon is dead
	done := make(chan error, 1)
	go func() {
		_, rerr := a.Run("allreduce", "--dtype", "i32", a.Path("host", "x"), a.at("b", "host", "x"))
		done <- rerr
	}()
	word := func(at int) uint32 {
		p := make([]byte, 4)
		if n, perr := unix.Pread(int(f.Fd()), p, int64(at)); perr != nil || n != 4 {
			return 0 // the daemon is dead, and the kernel does not serve the read itself
		}
		return binary.LittleEndian.Uint32(p)
	}
	limit := time.Now().Add(patience)
	for word(0) == 20 && time.Now().Before(limit) {
		// Poll without a pause, to kill it in the middle.
	}
	b.Kill()
	err = soon(t, "the collective", func() error { return <-done })
	if err != nil && !strings.Contains(err.Error(), "node b") {
		t.Errorf("the error does not name the node: %v", err)
	}
	return word(4*count-4) == uint32(count-1+20)
}
