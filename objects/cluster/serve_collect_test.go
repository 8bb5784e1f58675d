package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/objects/collect"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// TestPanicOfAPart: it is that of the collective, and the log has it.
func TestPanicOfAPart(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	// A part without a job, and one that can't even meet the others.
	for _, nodes := range [][]string{{"a"}, {"a", "b"}} {
		j := &collected{ended: make(chan struct{}), part: &part{
			c: &Cluster{opts: Options{Logger: zap.New(core)}}, ask: &proto.CollectAsk{Nodes: nodes, Epochs: make([]uint64, len(nodes))},
		}}
		j.run(&server{})
		<-j.ended
		if _, ok := errors.AsType[*collect.PanicError](j.err); !ok {
			t.Errorf("nodes %q: %v", nodes, j.err)
		}
	}
	if n := logs.FilterMessage("a collective has panicked").Len(); n != 2 {
		t.Errorf("the log has %d of 2 panics", n)
	}
}

// TestJobsCountBeforeTheyTakeMemory: who asks for many collectives at once gets no
// more than who asks for one after the other.
func TestJobsCountBeforeTheyTakeMemory(t *testing.T) {
	g := &guest{}
	if err := g.addJob("first", &collected{}); err != nil {
		t.Fatal(err)
	}
	for range maxJobs - 1 {
		if err := g.beginJob(); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.beginJob(); !errors.Is(err, objects.ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	g.begunJob()
	if err := g.beginJob(); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

// prepared has a server prepare a part of a collective of a file, in place.
func (r *serverRig) prepared(who rpc.Caller, name string) (job []byte, ino objects.Ino) {
	r.t.Helper()
	r.server.o.Part = func(ctx context.Context, t collect.Task, _ *proto.CollectAsk, places []collect.Place, _ time.Duration) (*part, error) {
		done, err := collect.Turn(ctx, r.store, places)
		if err != nil {
			return nil, err
		}
		p := &part{stop: func() {}}
		p.job, err = collect.Prepare(ctx, t, places, done)
		return p, err
	}
	job = append(make([]byte, proto.JobSize-1), name[0])
	ino = r.file(name).Ino
	h := r.open(who, ino, proto.AccessRead|proto.AccessWrite)
	size := uint64(4096)
	if _, err := r.store.SetAttr(r.t.Context(), ino, objects.Change{Size: &size}); err != nil {
		r.t.Fatal(err)
	}
	q := &proto.CollectAsk{
		Job: job, Kind: uint32(plan.AllReduce), Type: uint32(elem.Uint8), Op: uint32(elem.Sum), Size: 4096,
		Nodes: []string{"b"}, Epochs: []uint64{3}, Of: []uint32{0}, Files: []proto.CollectFile{{Source: h, Target: h}},
	}
	var out proto.CollectAnswer
	if r.must(who, proto.MethodCollect, q, &out); !out.Done {
		r.t.Fatal("it has not been prepared")
	}
	return job, ino
}

// TestUnwantedPart: a part that nobody asks for gives back its memory and its turn,
// while the session goes on.
func TestUnwantedPart(t *testing.T) {
	r := newServerRig(t)
	who := r.hello(1)
	r.server.unwantedAfter.Store(int64(10 * time.Millisecond))
	job, ino := r.prepared(who, "x")
	done, err := r.store.TakeTurn(t.Context(), nil, []objects.Ino{ino})
	if err != nil {
		t.Fatal(err)
	}
	done()
	for _, m := range []rpc.Method{proto.MethodCollectWait, proto.MethodCollectEnd} {
		if err = r.put(who, m, &proto.JobAsk{Job: job, Wait: 1}, &proto.CollectAnswer{}); !errors.Is(err, ErrStale) {
			t.Errorf("method %d of what was dropped: %v", m, err)
		}
	}
}

// TestWantedPart: who says that a part is wanted does not begin it, and his session
// still ends it.
func TestWantedPart(t *testing.T) {
	r := newServerRig(t)
	who := r.hello(1)
	job, ino := r.prepared(who, "x")
	var out proto.CollectAnswer
	if r.must(who, proto.MethodCollectWait, &proto.JobAsk{Job: job}, &out); out.Done {
		t.Error("it is done")
	}
	g, err := r.server.guest(who)
	if err != nil {
		t.Fatal(err)
	}
	j, err := g.job(string(job), false)
	if err != nil {
		t.Fatal(err)
	}
	if err = j.end(t.Context(), g, true); err == nil || err.Error() != "it was not begun" {
		t.Errorf("its end: %v", err)
	}
	if _, err = g.job(string(job), true); err != nil {
		t.Fatal(err)
	}
	// It has ended, and its turn with it.
	done, err := r.store.TakeTurn(t.Context(), nil, []objects.Ino{ino})
	if err != nil {
		t.Fatal(err)
	}
	done()
}
