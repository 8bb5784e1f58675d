package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

const both = objects.PermRead | objects.PermWrite

func open(t *testing.T, n *cluster.Node, ino objects.Ino) *cluster.File {
	t.Helper()
	f, err := n.Open(t.Context(), clustertest.Root(), ino, both)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return f
}

func otherOf(name members.Name) members.Name {
	if name == "a" {
		return "b"
	}
	return "a"
}

func read(t *testing.T, f *cluster.File, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	k, err := f.Peek(t.Context(), p, 0)
	if err != nil {
		t.Fatalf("read %d bytes: %v", n, err)
	}
	return p[:k]
}

// TestBrokenSession reads and writes an open file whose session ended.
func TestBrokenSession(t *testing.T) {
	ways(t, func(t *testing.T, o clustertest.Options) {
		kit.Check(t)
		w := clustertest.New(t, o)
		content := kit.Bytes(7, 0, 300_000)
		ino := w.Node("b").File("sim0", "w", content)
		b := w.Peer("a", "b")
		f := open(t, b, ino)
		for _, breaker := range []members.Name{"a", "b"} {
			if err := w.Node(breaker).Cluster.Break(otherOf(breaker)); err != nil {
				t.Fatal(err)
			}
			if got := read(t, f, len(content)); !bytes.Equal(got, content) {
				t.Fatalf("after a break by %s: differ at %d", breaker, kit.FirstDiff(got, content))
			}
		}
		if err := w.Node("a").Cluster.Break("b"); err != nil {
			t.Fatal(err)
		}
		fresh := kit.Bytes(8, 0, 100_000)
		if n, err := f.WriteAt(t.Context(), fresh, objects.Write{Off: 1000}); err != nil || n != len(fresh) {
			t.Fatalf("write after a break: %d, %v", n, err)
		}
		copy(content[1000:], fresh)
		if got := w.Node("b").Content(ino); !bytes.Equal(got, content) {
			t.Errorf("differ at %d", kit.FirstDiff(got, content))
		}
	})
}

// TestBreakTells makes listeners drop everything that was received in a broken session.
func TestBreakTells(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{})
	b := w.Peer("a", "b")
	told := make(chan cluster.Invalidation, 16)
	w.Node("a").Cluster.OnInvalidate(func(i cluster.Invalidation) { told <- i })
	f := open(t, b, w.Node("b").File("host", "w", []byte("x")))
	version := f.Version()
	if err := w.Node("b").Cluster.Break("a"); err != nil {
		t.Fatal(err)
	}
	for i := range told {
		if i.Node != b {
			t.Fatalf("an invalidation of another node: %+v", i)
		}
		if i.All {
			break
		}
	}
	if f.Version() == version {
		t.Error("the version is the same")
	}
}

// TestRestart has a node come back as a new incarnation.
func TestRestart(t *testing.T) {
	ways(t, func(t *testing.T, o clustertest.Options) {
		kit.Check(t)
		w := clustertest.New(t, o)
		ctx, root := t.Context(), clustertest.Root()
		ino := w.Node("b").File("host", "w", []byte("content"))
		old := w.Peer("a", "b")
		f := open(t, old, ino)
		w.Node("b").Leave()
		if _, err := f.Peek(ctx, make([]byte, 1), 0); !errors.Is(err, cluster.ErrUnreachable) {
			t.Errorf("a file of a node that left: %v", err)
		}
		if _, err := old.Attr(ctx, root, ino); !errors.Is(err, cluster.ErrUnreachable) {
			t.Errorf("a node that left: %v", err)
		}
		w.Node("b").Join()
		// It announces its identity; the next requester learns of it.
		if _, err := w.Peer("b", "a").Lookup(ctx, root, metadata.RootIno, "host"); err != nil {
			t.Fatal(err)
		}
		now := w.Peer("a", "b")
		if now == old || !old.Gone() || now.Gone() || now.Record().Epoch <= old.Record().Epoch {
			t.Errorf("the same node: %+v, %+v", old.Record(), now.Record())
		}
		if _, err := f.Peek(ctx, make([]byte, 1), 0); !errors.Is(err, cluster.ErrStale) {
			t.Errorf("a file of the incarnation before: %v", err)
		}
		if _, err := old.Attr(ctx, root, ino); !errors.Is(err, cluster.ErrStale) {
			t.Errorf("the incarnation before: %v", err)
		}
		if got := read(t, open(t, now, ino), 100); string(got) != "content" {
			t.Errorf("read %q", got)
		}
	})
}

// TestRestartFoundByAsker is TestRestart in which this node connects first.
func TestRestartFoundByAsker(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{})
	ctx, root := t.Context(), clustertest.Root()
	ino := w.Node("b").File("host", "w", []byte("content"))
	old := w.Peer("a", "b")
	f := open(t, old, ino)
	w.Node("b").Leave()
	w.Node("b").Join()
	if _, err := f.Peek(ctx, make([]byte, 1), 0); !errors.Is(err, cluster.ErrStale) {
		t.Errorf("a file of the incarnation before: %v", err)
	}
	if a, err := w.Peer("a", "b").Attr(ctx, root, ino); err != nil || a.Size != 7 {
		t.Errorf("the new one: %+v, %v", a, err)
	}
}

// TestDeadNode sends requests to a node that was never started: they fail at once, and without
// a new attempt for each.
func TestDeadNode(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{})
	w.Node("b").Leave()
	a := w.Node("a").Cluster
	b := w.Peer("a", "b")
	for range 100 {
		_, err := b.Lookup(t.Context(), clustertest.Root(), metadata.RootIno, "host")
		if !errors.Is(err, cluster.ErrUnreachable) {
			t.Fatalf("a dead node: %v", err)
		}
	}
	if s := a.Nodes(); len(s) != 1 || s[0].Connected || s[0].Problem == "" {
		t.Errorf("its state: %+v", s)
	}
	w.Node("b").Join()
	kit.Eventually(t, 20*time.Second, func() bool {
		b, err := a.Node("b")
		if err != nil {
			return false
		}
		_, err = b.Lookup(t.Context(), clustertest.Root(), metadata.RootIno, "host")
		return err == nil
	})
	if s := a.Nodes(); s[0].Problem != "" || !s[0].Connected {
		t.Errorf("its state when it is back: %+v", s)
	}
}

// TestSilentNode sends requests to a node whose machine accepts the connection and never
// answers.
func TestSilentNode(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Change: func(_ members.Name, o *cluster.Options) {
		o.DialTimeout = 100 * time.Millisecond
	}})
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if cerr := l.Close(); cerr != nil {
			t.Error(cerr)
		}
	}()
	w.Node("a").View.Set("b", l.Addr().String())
	b := w.Peer("a", "b")
	if _, err = b.Attr(t.Context(), clustertest.Root(), metadata.RootIno); !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("a silent node: %v", err)
	}
}

// TestSecondAddress reaches a node at the second of its addresses.
func TestSecondAddress(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{})
	at := w.Node("b").Cluster.Listening()[0]
	w.Node("a").View.Set("b", "127.0.0.1:1", "unix:/nonexistent/socket", "nonsense", at)
	if _, err := w.Peer("a", "b").Attr(t.Context(), clustertest.Root(), metadata.RootIno); err != nil {
		t.Error(err)
	}
}

// TestOtherName sends requests to a node at an address where another one listens: the error
// names that node, if known, and does not suggest that the secret is wrong.
func TestOtherName(t *testing.T) {
	for name, want := range map[members.Name]string{
		"c":       "the node at this address is c, not b; correct the list of peers",
		"unknown": "the node at this address has a name other than b; correct the list of peers, or the node's --node",
	} {
		t.Run(string(name), func(t *testing.T) {
			kit.Check(t)
			w := clustertest.New(t, clustertest.Options{Names: []members.Name{"a", "b", name}})
			a := w.Node("a")
			a.View.Hide("unknown", true)
			a.View.Set("b", w.Node(name).Cluster.Listening()[0])
			_, err := w.Peer("a", "b").Lookup(t.Context(), clustertest.Root(), metadata.RootIno, "host")
			if !errors.Is(err, cluster.ErrUnreachable) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "authenticated") {
				t.Errorf("%v; want %q", err, want)
			}
		})
	}
}

// TestRealAddress has a node connect from an address other than the listed one: the state of
// the nodes has the address of the connection.
func TestRealAddress(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{})
	b := w.Node("b")
	b.View.Set("a", "127.0.0.1:1") // b can't connect there
	if _, err := w.Peer("a", "b").Lookup(t.Context(), clustertest.Root(), metadata.RootIno, "host"); err != nil {
		t.Fatal(err)
	}
	state := b.Cluster.Nodes()[0]
	host, _, err := net.SplitHostPort(state.Remote)
	if err != nil || host != "127.0.0.1" || state.Remote == "127.0.0.1:1" {
		t.Errorf("a is connected from %q: %v", state.Remote, err)
	}
}

// TestStrangers admits nodes that know the secret and belong to the cluster.
func TestStrangers(t *testing.T) {
	for name, change := range map[string]func(o *cluster.Options){
		"secret":  func(o *cluster.Options) { o.Secret = []byte("another secret, as long") },
		"cluster": func(o *cluster.Options) { o.Name = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			w := clustertest.New(t, clustertest.Options{Change: func(name members.Name, o *cluster.Options) {
				if name == "b" {
					change(o)
				}
			}})
			for _, of := range []members.Name{"a", "b"} {
				peer := otherOf(of)
				_, err := w.Peer(of, peer).Lookup(t.Context(), clustertest.Root(), metadata.RootIno, "host")
				want := cluster.ErrUnreachable
				if name == "cluster" {
					want = cluster.ErrVersion
				}
				if !errors.Is(err, want) {
					t.Errorf("%s of %s: %v", peer, of, err)
				}
			}
		})
	}
}

// TestHidden has a node that leaves the view, and comes back.
func TestHidden(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{})
	a := w.Node("a")
	b := w.Peer("a", "b")
	if _, err := b.Attr(t.Context(), clustertest.Root(), metadata.RootIno); err != nil {
		t.Fatal(err)
	}
	a.View.Hide("b", true)
	if _, err := a.Cluster.Node("b"); !errors.Is(err, cluster.ErrNoNode) {
		t.Errorf("a hidden node: %v", err)
	}
	if !b.Gone() || len(a.Cluster.Nodes()) != 0 {
		t.Error("it is not gone")
	}
	a.View.Hide("b", false)
	if again, err := a.Cluster.Node("b"); err != nil || again != b || b.Gone() {
		t.Errorf("the same incarnation is another node: %v", err)
	}
}

// TestNeverMet has a node that is in the view for a while and never connected, of which there
// may be any number: nothing is kept of it.
func TestNeverMet(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	a := w.Node("a")
	if _, err := w.Peer("a", "b").Attr(t.Context(), clustertest.Root(), metadata.RootIno); err != nil {
		t.Fatal(err)
	}
	c := w.Peer("a", "c")
	a.View.Hide("c", true)
	if _, err := a.Cluster.Node("c"); !errors.Is(err, cluster.ErrNoNode) || !c.Gone() || a.Cluster.Known() != 1 {
		t.Errorf("%v, gone %v, %d nodes are known", err, c.Gone(), a.Cluster.Known())
	}
	a.View.Hide("c", false)
	if _, err := w.Peer("a", "c").Attr(t.Context(), clustertest.Root(), metadata.RootIno); err != nil {
		t.Errorf("when it is back: %v", err)
	}
	if _, err := c.Attr(t.Context(), clustertest.Root(), metadata.RootIno); !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("the one that has left: %v", err)
	}
}

// TestCloseEnds makes requests in progress, and all later ones, fail.
func TestCloseEnds(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{})
	b := w.Peer("a", "b")
	f := open(t, b, w.Node("b").File("host", "w", []byte("x")))
	w.Node("a").Leave()
	if _, err := f.Peek(t.Context(), make([]byte, 1), 0); !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("read behind Close: %v", err)
	}
	w.Node("a").Leave()
}

// isFull reports whether an error is that of a full device.
func isFull(err error) bool {
	return errors.Is(err, devices.ErrOutOfMemory) || errors.Is(err, syscall.ENOSPC)
}
