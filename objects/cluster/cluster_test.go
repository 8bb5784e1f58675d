package cluster_test

import (
	"bytes"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/cluster/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// ways are the networks between nodes.
func ways(t *testing.T, fn func(t *testing.T, o clustertest.Options)) {
	t.Helper()
	t.Run("tcp", func(t *testing.T) { fn(t, clustertest.Options{}) })
	t.Run("shm", func(t *testing.T) { fn(t, clustertest.Options{Unix: true}) })
}

// TestTwoNodes makes, finds, lists, writes and reads files of another node.
func TestTwoNodes(t *testing.T) {
	ways(t, func(t *testing.T, o clustertest.Options) {
		kit.Check(t)
		w := clustertest.New(t, o)
		for _, device := range []string{"host", "sim0"} {
			oneFile(t, w, device)
		}
		if s := w.Node("a").Cluster.Nodes(); len(s) != 1 || !s[0].Connected || s[0].Epoch == 0 {
			t.Errorf("nodes: %+v", s)
		}
	})
}

// oneFile makes a file on a device of b, by way of a.
func oneFile(t *testing.T, w *clustertest.World, device string) {
	t.Helper()
	b := w.Peer("a", "b")
	ctx, root := t.Context(), clustertest.Root()
	dir, err := b.Lookup(ctx, root, metadata.RootIno, device)
	if err != nil {
		t.Fatal(err)
	}
	a, err := b.Create(ctx, root, dir.Ino, "w", metadata.Node{Mode: metadata.TypeRegular | 0o644})
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.Open(ctx, root, a.Ino, cluster.Read|cluster.Write)
	if err != nil {
		t.Fatal(err)
	}
	content := kit.Bytes(1, 0, 5<<20+12345)
	if n, failure := f.WriteAt(ctx, content, objects.Write{}); failure != nil || n != len(content) {
		t.Fatalf("write: %d, %v", n, failure)
	}
	got := make([]byte, len(content)+100)
	n, err := f.Peek(ctx, got, 0)
	if err != nil || !bytes.Equal(got[:n], content) {
		t.Fatalf("read %d bytes: differ at %d, %v", n, kit.FirstDiff(got[:n], content), err)
	}
	if err = f.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if a, err = b.Attr(ctx, root, a.Ino); err != nil || a.Size != uint64(len(content)) {
		t.Errorf("size %d, %v", a.Size, err)
	}
	if got = w.Node("b").Content(a.Ino); !bytes.Equal(got, content) {
		t.Errorf("the owner's bytes differ at %d", kit.FirstDiff(got, content))
	}
	list, err := b.OpenDir(root, dir.Ino).After(ctx, 0)
	if err != nil || len(list) != 1 || list[0].Name != "w" || list[0].Attr == nil {
		t.Errorf("list: %+v, %v", list, err)
	}
}
