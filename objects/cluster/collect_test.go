package cluster_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/cluster/clustertest"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/objects/collect"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// floats are bytes that are finite numbers of elem.Float32, for whose sums the
// order matters.
func floats(seed uint64, count int) []byte {
	p := kit.Bytes(seed, 0, 4*count)
	for i := 0; i < len(p); i += 4 {
		x := float32(int32(binary.LittleEndian.Uint32(p[i:]))) / 7e4
		binary.LittleEndian.PutUint32(p[i:], math.Float32bits(x))
	}
	return p
}

// results are what the files of a collective have to be, the plain way.
func results(t *testing.T, task collect.Task, sources [][]byte) [][]byte {
	t.Helper()
	n := len(sources)
	var sum []byte
	if task.Op != 0 {
		sum = bytes.Clone(sources[0])
		for _, p := range sources[1:] {
			if err := elem.Combine(task.Op, task.Type, sum, sum, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	out := make([][]byte, n)
	for r := range out {
		out[r] = sources[r]
		if !task.HasResult(r) {
			continue
		}
		size := task.Type.Size()
		part := plan.Part(task.Size/size, r, n)
		from, to := part.Off*size, (part.Off+part.Len)*size
		switch task.Kind {
		case plan.AllReduce, plan.Reduce:
			out[r] = sum
		case plan.Broadcast:
			out[r] = sources[task.Root]
		case plan.AllGather:
			out[r] = bytes.Join(sources, nil)
		case plan.ReduceScatter:
			out[r] = sum[from:to]
		case plan.AllToAll:
			out[r] = nil
			for _, p := range sources {
				out[r] = append(out[r], p[from:to]...)
			}
		default:
		}
	}
	return out
}

// TestCollect does every collective in place on files of three nodes, which node
// a asks for, and which are in the order of the nodes, or are not.
func TestCollect(t *testing.T) {
	ways(t, func(t *testing.T, o clustertest.Options) {
		kit.Check(t)
		o.Names = []members.Name{"a", "b", "c"}
		w := clustertest.New(t, o)
		for i, places := range [][]members.Name{{"a", "b"}, {"b", "c"}, {"a", "b", "c"}, {"c", "a", "a", "b", "c"}} {
			for kind := plan.AllReduce; kind <= plan.AllToAll; kind++ {
				for j, count := range []int{1, 300_001} {
					name := fmt.Sprintf("%d-%v-%d", i, kind, count)
					t.Run(name, func(t *testing.T) {
						task := collect.Task{Kind: kind, Type: elem.Float32, Ranks: len(places), Size: 4 * uint64(count), Root: 1}
						if collect.Combines(kind) {
							task.Op, task.Strict = elem.Sum, true
						}
						collectOnce(t, w, task, places, name, uint64(i*1000+int(kind)*100+j*50))
					})
				}
			}
		}
	})
}

func collectOnce(t *testing.T, w *clustertest.World, task collect.Task, places []members.Name, name string, seed uint64) {
	t.Helper()
	var sources [][]byte
	var files []objects.Ino
	var ranks []cluster.CollectRank
	for r, at := range places {
		p := floats(seed+uint64(r)+1, int(task.Size/4))
		device := []string{"sim0", "host"}[r%2]
		ino := w.Node(at).File(device, fmt.Sprintf("%s.%d", name, r), p)
		e := end(t, w, at, ino, 0)
		sources, files = append(sources, p), append(files, ino)
		rank := cluster.CollectRank{}
		if task.HasSource(r) {
			rank.Source = e
		}
		if task.HasResult(r) {
			rank.Target = e
		}
		ranks = append(ranks, rank)
	}
	report, err := w.Node("a").Cluster.Collect(t.Context(), task, ranks, false)
	if err != nil {
		t.Fatal(err)
	}
	if report.Algorithm == "" || report.Calls == 0 {
		t.Errorf("report %+v", report)
	}
	for r, want := range results(t, task, sources) {
		if got := w.Node(places[r]).Content(files[r]); !bytes.Equal(got, want) {
			t.Errorf("rank %d, on %s: %d bytes, not %d; differ at %d", r, places[r], len(got), len(want), kit.FirstDiff(got, want))
		}
	}
}

// TestCollectMeasuresOnce: what the nodes of a collective have measured is taken for
// the next one of the same nodes, and a node that is told nonsense refuses.
func TestCollectMeasuresOnce(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	var ranks []cluster.CollectRank
	for _, at := range []members.Name{"a", "b"} {
		e := end(t, w, at, w.Node(at).File("sim0", "x", kit.Bytes(1, 0, 4096)), 0)
		ranks = append(ranks, cluster.CollectRank{Source: e, Target: e})
	}
	task := collect.Task{Kind: plan.AllReduce, Type: elem.Uint8, Op: elem.Sum, Ranks: 2, Size: 4096}
	asks := w.Node("a").Cluster
	for i, add := range []time.Duration{0, time.Minute, 0, 0} {
		report, err := asks.Collect(t.Context(), task, ranks, false)
		if bad := i == 3; bad != (err != nil) || err == nil && (report.Predicted >= time.Minute) != (i == 2) {
			t.Errorf("collective %d: %v, predicted %v", i, err, report.Predicted)
		}
		groups, err := asks.Remeasure(func(c *plan.Costs) {
			c.Between.Latency += add
			c.Inside.Latency += add
		})
		want := 1
		if i == 3 {
			want = 0 // it is measured anew
		}
		if err != nil || groups != want {
			t.Errorf("%d groups, %v", groups, err)
		}
		if i == 2 {
			_, err = asks.Remeasure(func(c *plan.Costs) { c.Between.Latency, c.Inside.Latency = -1, -1 })
			if err != nil {
				t.Error(err)
			}
		}
	}
	if report, err := asks.Collect(t.Context(), task, ranks, false); err != nil || report.Predicted >= time.Minute {
		t.Errorf("after that: %v, predicted %v", err, report.Predicted)
	}
}

// TestCollectIsKept: a node keeps its part while another one has to wait for its
// files for longer than parts are kept that nobody asks for.
func TestCollectIsKept(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	if testing.Short() {
		t.Skip("takes its time")
	}
	const unwanted = 3 * time.Second
	w.Node("a").Cluster.Unwanted(80 * time.Millisecond) // it says often that it wants them
	w.Node("b").Cluster.Unwanted(unwanted)
	var ranks []cluster.CollectRank
	var files []objects.Ino
	for _, at := range []members.Name{"b", "c"} {
		ino := w.Node(at).File("sim0", "x", kit.Bytes(1, 0, 4096))
		e := end(t, w, at, ino, 0)
		ranks, files = append(ranks, cluster.CollectRank{Source: e, Target: e}), append(files, ino)
	}
	done, err := w.Node("c").Store.TakeTurn(t.Context(), nil, files[1:])
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(unwanted+unwanted/4, done)
	task := collect.Task{Kind: plan.AllReduce, Type: elem.Uint8, Op: elem.Sum, Ranks: 2, Size: 4096}
	if _, err = w.Node("a").Cluster.Collect(t.Context(), task, ranks, false); err != nil {
		t.Error(err)
	}
}

// TestCollectRefused: what one node can't do leaves the files of all.
func TestCollectRefused(t *testing.T) {
	kit.Check(t)
	w := clustertest.New(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	p := kit.Bytes(1, 0, 1<<20)
	one := w.Node("b").File("sim0", "x", p)
	other := w.Node("c").File("sim0", "y", p[:1<<19])
	task := collect.Task{Kind: plan.AllReduce, Type: elem.Uint8, Op: elem.Sum, Ranks: 2, Size: 1 << 20}
	ranks := []cluster.CollectRank{
		{Source: end(t, w, "b", one, 0), Target: end(t, w, "b", one, 0)},
		{Source: end(t, w, "c", other, 0), Target: end(t, w, "c", other, 0)},
	}
	_, err := w.Node("a").Cluster.Collect(t.Context(), task, ranks, false)
	if !errors.Is(err, objects.ErrInvalid) {
		t.Errorf("files of two lengths: %v", err)
	}
	if got := w.Node("b").Content(one); !bytes.Equal(got, p) {
		t.Error("a file has changed")
	}
	// A node that is gone.
	w.Node("c").Leave()
	_, err = w.Node("a").Cluster.Collect(t.Context(), task, ranks, false)
	if !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("with a node that is gone: %v", err)
	}
	if got := w.Node("b").Content(one); !bytes.Equal(got, p) {
		t.Error("a file has changed")
	}
}

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

// TestSumsTakeLittleMemory: many who ask for the sums of large blocks at once
// take no such blocks of memory each.
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

// TestSumsEndWithTheContext asks for the sums of a file of which nothing is
// there but its length.
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
