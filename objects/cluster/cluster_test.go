package cluster_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// ways runs a test with each kind of network between nodes.
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

// oneFile creates a file on a device of b, through a.
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
	f, err := b.Open(ctx, root, a.Ino, objects.PermRead|objects.PermWrite)
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

// generations fills p with words that encode their place in the file, from offset off on, and
// the number of the write.
func generations(p []byte, off, write int) {
	for i := 0; i < len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], uint64(write)<<32|uint64(off+i))
	}
}

// writesIn returns the first and the last write that the words belong to.
func writesIn(t *testing.T, p []byte, off int) (first, last uint64) {
	t.Helper()
	first = math.MaxUint64
	for i := 0; i < len(p); i += 8 {
		word := binary.LittleEndian.Uint64(p[i:])
		if int(uint32(word)) != off+i {
			t.Fatalf("at %d there are the bytes of %d", off+i, uint32(word))
		}
		first, last = min(first, word>>32), max(last, word>>32)
	}
	return first, last
}

// TestBytesTellOfChanges: newer bytes themselves reveal the change, even if the owner's notice
// has not arrived yet, so that a reader that has received them uses no older ones.
func TestBytesTellOfChanges(t *testing.T) {
	ways(t, func(t *testing.T, o clustertest.Options) {
		kit.Check(t)
		const half, rounds = 64 << 10, 300
		w := clustertest.New(t, o)
		b := w.Node("b")
		content := make([]byte, 2*half)
		generations(content, 0, 1)
		ino := b.File("sim0", "w", bytes.Clone(content))
		f, err := w.Peer("a", "b").Open(t.Context(), clustertest.Root(), ino, objects.PermRead)
		if err != nil {
			t.Fatal(err)
		}
		own, err := b.Store.OpenFile(t.Context(), ino)
		if err != nil {
			t.Fatal(err)
		}
		ctx, enough := context.WithCancel(t.Context())
		var writer sync.WaitGroup
		writer.Go(func() {
			for write := 2; ctx.Err() == nil; write++ {
				generations(content, 0, write)
				if _, werr := own.WriteAt(ctx, content, objects.Write{}); werr != nil && ctx.Err() == nil {
					t.Error(werr)
					return
				}
			}
		})
		defer func() {
			enough()
			writer.Wait()
			if err := errors.Join(own.Close(t.Context()), f.Close(t.Context())); err != nil {
				t.Error(err)
			}
		}()
		peek := func(off int) (first, last uint64) {
			got := make([]byte, half)
			if n, err := f.Peek(t.Context(), got, uint64(off)); err != nil || n != half {
				t.Fatalf("%d bytes at %d: %v", n, off, err)
			}
			return writesIn(t, got, off)
		}
		for range rounds {
			version := f.Version()
			older, _ := peek(half)
			_, newer := peek(0)
			if f.Version() == version && older < newer {
				t.Fatalf("bytes of write %d may be used after those of write %d", older, newer)
			}
		}
	})
}
