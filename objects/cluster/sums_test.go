package cluster_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"runtime"
	"testing"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestSums compares files by their checksums.
func TestSums(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Names: []members.Name{"a", "b"}})
	p := kit.Bytes(1, 0, 3<<20+17)
	there := end(t, w, "b", w.Node("b").File("sim0", "x", p), 0).Remote
	here := end(t, w, "a", w.Node("a").File("host", "x", p), 0).Local
	const block = 1 << 20
	for _, c := range []struct{ from, n, want int }{{0, 64, 4}, {1, 2, 2}, {3, 1, 1}, {4, 5, 0}} {
		got, err := there.Sums(t.Context(), block, uint64(c.from), c.n)
		if err != nil || len(got) != 32*c.want {
			t.Fatalf("%+v: %d bytes, %v", c, len(got), err)
		}
		want, err := cluster.SumsOf(t.Context(), here, block, uint64(c.from), c.n)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%+v: other sums there than here, %v", c, err)
		}
	}
	if _, err := there.Sums(t.Context(), block, 0, 10000); err == nil {
		t.Error("10000 blocks at once")
	}
}

// TestSumsTakeLittleMemory: many concurrent requests for the sums of large blocks don't
// allocate such a block each.
func TestSumsTakeLittleMemory(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Names: []members.Name{"a"}})
	p := kit.Bytes(1, 0, 5<<20+17)
	here := end(t, w, "a", w.Node("a").File("host", "x", p), 0).Local
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := cluster.SumsOf(t.Context(), here, proto.MaxBlock, 0, 4)
	runtime.ReadMemStats(&after)
	want := sha256.Sum256(p)
	if err != nil || !bytes.Equal(got, want[:]) {
		t.Errorf("%d bytes of sums, %v", len(got), err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
		t.Errorf("%d bytes of memory were taken", took)
	}
}

// TestSumsEndWithTheContext requests the sums of a file that consists only of a hole.
func TestSumsEndWithTheContext(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Names: []members.Name{"a"}})
	for _, device := range []string{"host", "sim0"} {
		here := end(t, w, "a", w.Node("a").File(device, "x", nil), 0).Local
		size := uint64(1) << 40
		if _, err := w.Node("a").Store.SetAttr(t.Context(), here.Ino(), objects.Change{Size: &size}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := cluster.SumsOf(ctx, here, 1<<20, 0, 16); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want %v", device, err, context.Canceled)
		}
	}
}
