package filecollect

import (
	"errors"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// TestPanicOfAPart: a panic ends only the collective, and is logged.
func TestPanicOfAPart(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	// A part without a job, and one without a cluster to find the other node in.
	for _, nodes := range [][]string{{"a"}, {"a", "b"}} {
		j := &collected{ended: make(chan struct{}), part: &part{
			c: New(Options{Logger: zap.New(core)}), ask: &proto.CollectAsk{Nodes: nodes, Epochs: make([]uint64, len(nodes))},
		}}
		j.run(func(fn func()) bool {
			go fn()
			return true
		})
		<-j.ended
		if _, ok := errors.AsType[*PanicError](j.err); !ok {
			t.Errorf("nodes %q: %v", nodes, j.err)
		}
	}
	if n := logs.FilterMessage("a collective has panicked").Len(); n != 2 {
		t.Errorf("the log has %d of 2 panics", n)
	}
}

// TestJobsCountBeforeTheyTakeMemory: a session that requests many collectives at once gets no
// more than one that requests them one after the other.
func TestJobsCountBeforeTheyTakeMemory(t *testing.T) {
	c := New(Options{})
	var from cluster.ClientSession
	for range maxJobs {
		if err := c.reserve(from); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.reserve(from); !errors.Is(err, objects.ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	c.unreserve(from)
	if err := c.reserve(from); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
