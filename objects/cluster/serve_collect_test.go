package cluster

import (
	"errors"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/objects/collect"
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
