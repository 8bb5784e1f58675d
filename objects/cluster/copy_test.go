package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// end opens a file as an end of a copy that node a initiates.
func end(t *testing.T, w *clustertest.World, of members.Name, ino objects.Ino, off uint64) cluster.End {
	t.Helper()
	if of != "a" {
		return cluster.End{Remote: open(t, w.Peer("a", of), ino), Off: off}
	}
	f, err := w.Node("a").Store.OpenFile(t.Context(), ino)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return cluster.End{Local: f, Off: off}
}

// TestCopy copies between any two of three nodes, and inside one, from and to
// every kind of device, small pieces and large ones.
func TestCopy(t *testing.T) {
	ways(t, func(t *testing.T, o clustertest.Options) {
		kit.Check(t)
		o.Names = []members.Name{"a", "b", "c"}
		w := clustertest.New(t, o)
		const large = 20<<20 + 4321
		for i, pair := range [][2]members.Name{{"a", "b"}, {"b", "a"}, {"b", "b"}, {"b", "c"}} {
			for j, devices := range [][2]string{{"host", "host"}, {"host", "sim0"}, {"sim0", "host"}, {"sim0", "sim0"}} {
				for k, c := range []struct{ size, from, to, n int }{
					{size: 100, n: 100},
					{size: 300_000, from: 1000, to: 77, n: 200_000},
					{size: large, from: 12345, to: 4096 + 1, n: large},
				} {
					name := fmt.Sprintf("%s-%s-%s-%s-%d", pair[0], devices[0], pair[1], devices[1], c.n)
					t.Run(name, func(t *testing.T) {
						seed := uint64(i*100 + j*10 + k + 1)
						content := kit.Bytes(seed, 0, c.size)
						before := kit.Bytes(seed+1000, 0, 50_000)
						src := w.Node(pair[0]).File(devices[0], name+".src", content)
						dst := w.Node(pair[1]).File(devices[1], name+".dst", before)
						moved := content[c.from:min(c.size, c.from+c.n)]
						got, err := w.Node("a").Cluster.Copy(t.Context(),
							end(t, w, pair[1], dst, uint64(c.to)), end(t, w, pair[0], src, uint64(c.from)), uint64(c.n))
						if err != nil || got != uint64(len(moved)) {
							t.Fatalf("copied %d bytes of %d: %v", got, len(moved), err)
						}
						want := make([]byte, max(len(before), c.to+len(moved)))
						copy(want, before)
						copy(want[c.to:], moved)
						if have := w.Node(pair[1]).Content(dst); !bytes.Equal(have, want) {
							t.Errorf("%d bytes, not %d; differ at %d", len(have), len(want), kit.FirstDiff(have, want))
						}
						unlink(t, w.Node(pair[0]), devices[0], name+".src")
						unlink(t, w.Node(pair[1]), devices[1], name+".dst")
					})
				}
			}
		}
	})
}

func unlink(t *testing.T, n *clustertest.Node, device, name string) {
	t.Helper()
	if err := n.Store.Unlink(t.Context(), n.Dir(device), name); err != nil {
		t.Fatal(err)
	}
}

// TestCopyPath checks the route that a file reports for its bytes.
func TestCopyPath(t *testing.T) {
	ways(t, func(t *testing.T, o clustertest.Options) {
		kit.Check(t)
		w := clustertest.New(t, o)
		want := "tcp"
		if o.Unix {
			want = "shm"
		}
		content := kit.Bytes(3, 0, 3<<20)
		there, here := w.Node("b").File("host", "w", content), w.Node("a").File("host", "w", nil)
		c := w.Node("a").Cluster
		if _, err := c.Copy(t.Context(), end(t, w, "a", here, 0), end(t, w, "b", there, 0), uint64(len(content))); err != nil {
			t.Fatal(err)
		}
		a, err := w.Node("a").Store.Attr(t.Context(), here)
		if err != nil || a.Path != want {
			t.Errorf("from there: path %q, not %q, %v", a.Path, want, err)
		}
		back := w.Node("b").File("sim0", "w", nil)
		if _, err = c.Copy(t.Context(), end(t, w, "b", back, 0), end(t, w, "a", here, 0), uint64(len(content))); err != nil {
			t.Fatal(err)
		}
		if a, err = w.Node("b").Store.Attr(t.Context(), back); err != nil || a.Path != want {
			t.Errorf("to there: path %q, not %q, %v", a.Path, want, err)
		}
	})
}

// TestCopyNotThroughUs makes two other nodes move the bytes between them.
func TestCopyNotThroughUs(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	content := kit.Bytes(3, 0, 6<<20)
	src, dst := w.Node("b").File("host", "w", content), w.Node("c").File("sim0", "w", nil)
	from, to := end(t, w, "b", src, 0), end(t, w, "c", dst, 0)
	n, err := w.Node("a").Cluster.Copy(t.Context(), to, from, uint64(len(content)))
	if err != nil || n != uint64(len(content)) {
		t.Fatal(n, err)
	}
	if s := w.Node("a").Cluster.Stats(); s.BytesIn != 0 || s.BytesOut != 0 {
		t.Errorf("bytes through the caller: %+v", s)
	}
	if s := w.Node("c").Cluster.Stats(); s.BytesIn != uint64(len(content)) {
		t.Errorf("bytes into the destination: %+v", s)
	}
}

// TestRelay copies between two nodes that don't know each other.
func TestRelay(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	w.Node("c").View.Hide("b", true)
	content := kit.Bytes(3, 0, 5<<20+77)
	src, dst := w.Node("b").File("host", "w", content), w.Node("c").File("sim0", "w", nil)
	n, err := w.Node("a").Cluster.Copy(t.Context(), end(t, w, "c", dst, 0), end(t, w, "b", src, 0), 1<<30)
	if err != nil || n != uint64(len(content)) {
		t.Fatal(n, err)
	}
	if got := w.Node("c").Content(dst); !bytes.Equal(got, content) {
		t.Errorf("differ at %d", kit.FirstDiff(got, content))
	}
}

// TestCopyNothing copies from beyond the end, and zero bytes.
func TestCopyNothing(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	c := w.Node("a").Cluster
	file := func(of members.Name) cluster.End {
		return end(t, w, of, w.Node(of).File("host", "w"+fmt.Sprint(of), []byte("abc")), 3)
	}
	here, there, far := file("a"), file("b"), file("c")
	for _, pair := range [][2]cluster.End{{here, there}, {there, here}, {far, there}, {there, far}} {
		if n, err := c.Copy(t.Context(), pair[0], pair[1], 100); n != 0 || err != nil {
			t.Errorf("behind the end: %d, %v", n, err)
		}
	}
	for _, bad := range [][2]cluster.End{{here, here}, {{}, there}, {there, {}}} {
		if _, err := c.Copy(t.Context(), bad[0], bad[1], 1); !errors.Is(err, objects.ErrInvalid) {
			t.Errorf("no copy between nodes: %v", err)
		}
	}
}

// TestCopyFull copies more than the other device has room for.
func TestCopyFull(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Size: 16 << 20})
	content := kit.Bytes(3, 0, 10<<20)
	src := w.Node("a").File("host", "w", content)
	w.Node("b").File("sim0", "other", content)
	dst := w.Node("b").File("sim0", "w", nil)
	n, err := w.Node("a").Cluster.Copy(t.Context(), end(t, w, "b", dst, 0), end(t, w, "a", src, 0), uint64(len(content)))
	if err == nil && n == uint64(len(content)) {
		t.Fatal("it fits")
	}
	if err != nil && !isFull(err) {
		t.Errorf("a full device: %v", err)
	}
	got := w.Node("b").Content(dst)
	if uint64(len(got)) < n || !bytes.Equal(got[:n], content[:n]) {
		t.Errorf("%d bytes told, %d there", n, len(got))
	}
}

// TestRemoteFull writes to a full device.
func TestRemoteFull(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Size: 16 << 20})
	content := kit.Bytes(3, 0, 12<<20)
	w.Node("b").File("sim0", "other", content)
	ino := w.Node("b").File("sim0", "w", nil)
	f := open(t, w.Peer("a", "b"), ino)
	n, err := f.WriteAt(t.Context(), content, objects.Write{})
	if err == nil && n == len(content) {
		t.Fatal("it fits")
	}
	if err != nil && !isFull(err) {
		t.Errorf("a full device: %v", err)
	}
	got := w.Node("b").Content(ino)
	if len(got) < n || !bytes.Equal(got[:n], content[:n]) {
		t.Errorf("%d bytes told, %d there; differ at %d", n, len(got), kit.FirstDiff(got[:n], content[:n]))
	}
}

// TestAppend appends from two nodes at once: no bytes are lost or torn.
func TestAppend(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	ino := w.Node("b").File("host", "log", nil)
	const each, lines = 1000, 50
	failures := make(chan error, 2)
	for i, of := range []members.Name{"a", "c"} {
		f := open(t, w.Peer(of, "b"), ino)
		go func() {
			line := bytes.Repeat([]byte{byte('x' + i)}, each)
			for range lines {
				if n, err := f.WriteAt(t.Context(), line, objects.Write{Append: true}); err != nil || n != each {
					failures <- fmt.Errorf("append: %d, %w", n, err)
					return
				}
			}
			failures <- nil
		}()
	}
	for range 2 {
		if err := <-failures; err != nil {
			t.Error(err)
		}
	}
	got := w.Node("b").Content(ino)
	if len(got) != 2*each*lines {
		t.Fatalf("%d bytes", len(got))
	}
	for i := 0; i < len(got); i += each {
		if line := got[i : i+each]; !bytes.Equal(line, bytes.Repeat(line[:1], each)) {
			t.Fatalf("line %d is torn", i/each)
		}
	}
}

// TestBigDirectory lists 10 000 entries and looks up each one, with few requests.
func TestBigDirectory(t *testing.T) {
	kit.Check(t)
	// The attributes must stay cached for as long as a slow machine takes.
	w := clustertest.New(t, clustertest.Options{Change: func(_ members.Name, o *cluster.Options) { o.AttrTTL = 60e9 }})
	const many = 10_000
	dir := w.Node("b").Dir("host")
	for i := range many {
		if _, err := w.Node("b").Store.Create(t.Context(), dir, fmt.Sprintf("entry-%05d", i), metadata.Node{Mode: metadata.TypeRegular | 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	b := w.Peer("a", "b")
	before := w.Node("a").Cluster.Stats().Questions
	d := b.OpenDir(clustertest.Root(), dir)
	seen := map[string]bool{}
	for at := metadata.Cookie(0); ; {
		page, err := d.After(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		// The kernel reads a page in parts.
		page = page[:min(len(page), 300)]
		for _, e := range page {
			if seen[e.Name] {
				t.Fatalf("%s is listed twice", e.Name)
			}
			seen[e.Name] = true
			a, err := b.Lookup(t.Context(), clustertest.Root(), dir, e.Name)
			if err != nil || a.Ino != e.Ino {
				t.Fatalf("look at %s: %v", e.Name, err)
			}
		}
		at = page[len(page)-1].Cookie
	}
	if len(seen) != many {
		t.Errorf("%d entries", len(seen))
	}
	if asked := w.Node("a").Cluster.Stats().Questions - before; asked > 20 {
		t.Errorf("%d questions for %d entries", asked, many)
	} else {
		t.Logf("%d questions for %d entries", asked, many)
	}
}
