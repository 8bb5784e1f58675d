package filecollect_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/objects/filecollect"
	"github.com/hmcfs/hmcfs/tests/clustertest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// world is a set of nodes that run collectives.
type world struct {
	*clustertest.World

	collectors map[members.Name]*filecollect.Collector
}

func newWorld(t *testing.T, o clustertest.Options) *world {
	t.Helper()
	w := &world{collectors: map[members.Name]*filecollect.Collector{}}
	o.Change = func(name members.Name, c *cluster.Options) {
		w.collectors[name] = filecollect.New(filecollect.Options{
			Store: c.Store, Engine: c.Engine, Timeout: c.Timeout, Logger: zap.NewNop(),
		})
		c.Extensions = append(c.Extensions, w.collectors[name])
	}
	w.World = clustertest.New(t, o)
	return w
}

func (w *world) at(name members.Name) *filecollect.Collector { return w.collectors[name] }

// end opens a file of a node for a collective that node a initiates.
func end(t *testing.T, w *world, of members.Name, ino objects.Ino) (e cluster.End) {
	t.Helper()
	var err error
	var closing func(context.Context) error
	if of == "a" {
		if e.Local, err = w.Node("a").Store.OpenFile(t.Context(), ino); err == nil {
			closing = e.Local.Close
		}
	} else {
		e.Remote, err = w.Peer("a", of).Open(t.Context(), clustertest.Root(), ino, objects.PermRead|objects.PermWrite)
		if err == nil {
			closing = e.Remote.Close
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closing(context.Background()) }) // its node may have left
	return e
}

// floats returns bytes that are finite numbers of elem.Float32, for whose sums the order
// matters.
func floats(seed uint64, count int) []byte {
	p := kit.Bytes(seed, 0, 4*count)
	for i := 0; i < len(p); i += 4 {
		x := float32(int32(binary.LittleEndian.Uint32(p[i:]))) / 7e4
		binary.LittleEndian.PutUint32(p[i:], math.Float32bits(x))
	}
	return p
}

// results returns the expected contents of the files of a collective: a rank without a result
// keeps its source.
func results(t *testing.T, task filecollect.Task, sources [][]byte) [][]byte {
	t.Helper()
	out := filecollect.Reference(t, task, sources)
	for r := range out {
		if !task.HasResult(r) {
			out[r] = sources[r]
		}
	}
	return out
}

// TestCollect runs every collective in place on files of three nodes, initiated by node a, with
// the ranks in and out of the order of the nodes.
func TestCollect(t *testing.T) {
	for way, unix := range map[string]bool{"tcp": false, "shm": true} {
		t.Run(way, func(t *testing.T) {
			kit.Check(t)
			o := clustertest.Options{Unix: unix, Names: []members.Name{"a", "b", "c"}}
			w := newWorld(t, o)
			for i, places := range [][]members.Name{{"a", "b"}, {"b", "c"}, {"a", "b", "c"}, {"c", "a", "a", "b", "c"}} {
				for kind := plan.AllReduce; kind <= plan.AllToAll; kind++ {
					for j, count := range []int{1, 300_001} {
						name := fmt.Sprintf("%d-%v-%d", i, kind, count)
						t.Run(name, func(t *testing.T) {
							task := filecollect.Task{Kind: kind, Type: elem.Float32, Ranks: len(places), Size: 4 * uint64(count), Root: 1}
							if kind.Combines() {
								task.Op, task.Strict = elem.Sum, true
							}
							collectOnce(t, w, task, places, name, uint64(i*1000+int(kind)*100+j*50))
						})
					}
				}
			}
		})
	}
}

func collectOnce(t *testing.T, w *world, task filecollect.Task, places []members.Name, name string, seed uint64) {
	t.Helper()
	var sources [][]byte
	var files []objects.Ino
	var ranks []filecollect.FileRank
	for r, at := range places {
		p := floats(seed+uint64(r)+1, int(task.Size/4))
		device := []string{"sim0", "host"}[r%2]
		ino := w.Node(at).File(device, fmt.Sprintf("%s.%d", name, r), p)
		e := end(t, w, at, ino)
		sources, files = append(sources, p), append(files, ino)
		rank := filecollect.FileRank{}
		if task.HasSource(r) {
			rank.Source = e
		}
		if task.HasResult(r) {
			rank.Target = e
		}
		ranks = append(ranks, rank)
	}
	report, err := w.at("a").Run(t.Context(), task, ranks, false)
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

// TestCollectMeasuresOnce: the measurement of one collective is reused for the next one of the
// same nodes, and a node that receives invalid costs refuses.
func TestCollectMeasuresOnce(t *testing.T) {
	kit.Check(t)
	w := newWorld(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	var ranks []filecollect.FileRank
	for _, at := range []members.Name{"a", "b"} {
		e := end(t, w, at, w.Node(at).File("sim0", "x", kit.Bytes(1, 0, 4096)))
		ranks = append(ranks, filecollect.FileRank{Source: e, Target: e})
	}
	task := filecollect.Task{Kind: plan.AllReduce, Type: elem.Uint8, Op: elem.Sum, Ranks: 2, Size: 4096}
	asks := w.at("a")
	for i, add := range []time.Duration{0, time.Minute, 0, 0} {
		report, err := asks.Run(t.Context(), task, ranks, false)
		if bad := i == 3; bad != (err != nil) || err == nil && (report.Predicted >= time.Minute) != (i == 2) {
			t.Errorf("collective %d: %v, predicted %v", i, err, report.Predicted)
		}
		groups, err := asks.Remeasure(func(c *plan.Costs) {
			c.Between.Latency += add
			c.Inside.Latency += add
		})
		want := 1
		if i == 3 {
			want = 0 // it is measured again
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
	if report, err := asks.Run(t.Context(), task, ranks, false); err != nil || report.Predicted >= time.Minute {
		t.Errorf("after that: %v, predicted %v", err, report.Predicted)
	}
}

// TestCollectIsKept: a node keeps its part while another one has to wait for its files for
// longer than parts without requests are kept.
func TestCollectIsKept(t *testing.T) {
	kit.Check(t)
	w := newWorld(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	if testing.Short() {
		t.Skip("takes its time")
	}
	const unwanted = 3 * time.Second
	w.at("a").Unwanted(80 * time.Millisecond) // it confirms often that it needs them
	w.at("b").Unwanted(unwanted)
	var ranks []filecollect.FileRank
	var files []objects.Ino
	for _, at := range []members.Name{"b", "c"} {
		ino := w.Node(at).File("sim0", "x", kit.Bytes(1, 0, 4096))
		e := end(t, w, at, ino)
		ranks, files = append(ranks, filecollect.FileRank{Source: e, Target: e}), append(files, ino)
	}
	done, err := w.Node("c").Store.TakeTurn(t.Context(), nil, files[1:])
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(unwanted+unwanted/4, done)
	task := filecollect.Task{Kind: plan.AllReduce, Type: elem.Uint8, Op: elem.Sum, Ranks: 2, Size: 4096}
	if _, err = w.at("a").Run(t.Context(), task, ranks, false); err != nil {
		t.Error(err)
	}
}

// TestCollectRefused: a failure on one node leaves the files of all unchanged.
func TestCollectRefused(t *testing.T) {
	kit.Check(t)
	w := newWorld(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	p := kit.Bytes(1, 0, 1<<20)
	one := w.Node("b").File("sim0", "x", p)
	other := w.Node("c").File("sim0", "y", p[:1<<19])
	task := filecollect.Task{Kind: plan.AllReduce, Type: elem.Uint8, Op: elem.Sum, Ranks: 2, Size: 1 << 20}
	ranks := []filecollect.FileRank{
		{Source: end(t, w, "b", one), Target: end(t, w, "b", one)},
		{Source: end(t, w, "c", other), Target: end(t, w, "c", other)},
	}
	_, err := w.at("a").Run(t.Context(), task, ranks, false)
	if !errors.Is(err, objects.ErrInvalid) {
		t.Errorf("files of two lengths: %v", err)
	}
	if got := w.Node("b").Content(one); !bytes.Equal(got, p) {
		t.Error("a file has changed")
	}
	// A node that is gone.
	w.Node("c").Leave()
	_, err = w.at("a").Run(t.Context(), task, ranks, false)
	if !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("with a node that is gone: %v", err)
	}
	if got := w.Node("b").Content(one); !bytes.Equal(got, p) {
		t.Error("a file has changed")
	}
}

// prepared makes node b prepare a part of a collective of a file of its own, in place.
func (w *world) prepared(t *testing.T) (in cluster.Session, job []byte, ino objects.Ino) {
	t.Helper()
	ino = w.Node("b").File("sim0", "x", kit.Bytes(1, 0, 4096))
	in, handle, err := end(t, w, "b", ino).Remote.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	job = kit.Bytes(2, 0, proto.JobSize)
	q := &proto.CollectAsk{
		Job: job, Kind: uint32(plan.AllReduce), Type: uint32(elem.Uint8), Op: uint32(elem.Sum), Size: 4096,
		Nodes: []string{"b"}, Epochs: []uint64{0}, Of: []uint32{0}, Files: []proto.CollectFile{{Source: handle, Target: handle}},
	}
	var out proto.CollectAnswer
	if err = in.Ask(t.Context(), proto.MethodCollect, q, &out); err != nil || !out.Done {
		t.Fatalf("prepared: %+v, %v", out, err)
	}
	return in, job, ino
}

// turn fails the test unless no collective has a file of node b, or releases it soon.
func (w *world) turn(t *testing.T, ino objects.Ino) {
	t.Helper()
	done, err := w.Node("b").Store.TakeTurn(t.Context(), nil, []objects.Ino{ino})
	if err != nil {
		t.Fatal(err)
	}
	done()
}

// TestUnwantedPart: a part without requests releases its memory and its turn, while the session
// continues.
func TestUnwantedPart(t *testing.T) {
	kit.Check(t)
	w := newWorld(t, clustertest.Options{Names: []members.Name{"a", "b"}})
	w.at("b").Unwanted(10 * time.Millisecond)
	in, job, ino := w.prepared(t)
	w.turn(t, ino)
	for _, m := range []rpc.Method{proto.MethodCollectWait, proto.MethodCollectEnd} {
		err := in.Ask(t.Context(), m, &proto.JobAsk{Job: job, Wait: 1}, &proto.CollectAnswer{})
		if !errors.Is(err, cluster.ErrStale) {
			t.Errorf("method %d of what was dropped: %v", m, err)
		}
	}
}

// TestWantedPart: a request that confirms that a part is needed does not start it.
func TestWantedPart(t *testing.T) {
	kit.Check(t)
	w := newWorld(t, clustertest.Options{Names: []members.Name{"a", "b"}})
	in, job, ino := w.prepared(t)
	var out proto.CollectAnswer
	if err := in.Ask(t.Context(), proto.MethodCollectWait, &proto.JobAsk{Job: job}, &out); err != nil || out.Done {
		t.Errorf("wanted: %+v, %v", out, err)
	}
	err := in.Ask(t.Context(), proto.MethodCollectEnd, &proto.JobAsk{Job: job, Commit: true}, nil)
	if err == nil || !strings.Contains(err.Error(), "the collective was not started") {
		t.Errorf("its end: %v", err)
	}
	w.turn(t, ino)
}

// TestPartEndsWithItsSession: a node that is gone leaves no part behind.
func TestPartEndsWithItsSession(t *testing.T) {
	kit.Check(t)
	w := newWorld(t, clustertest.Options{Names: []members.Name{"a", "b"}})
	_, _, ino := w.prepared(t)
	w.Node("a").Leave()
	w.turn(t, ino)
}

// TestNoFiles requests a collective of ranks without a file, without a cluster.
func TestNoFiles(t *testing.T) {
	c := filecollect.New(filecollect.Options{Logger: zap.NewNop()})
	task := filecollect.Task{Kind: plan.AllReduce, Type: elem.Uint8, Op: elem.Sum, Ranks: 2, Size: 4096}
	for _, n := range []int{0, 2} {
		if _, err := c.Run(t.Context(), task, make([]filecollect.FileRank, n), false); !errors.Is(err, objects.ErrInvalid) {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}
