package cluster

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/objects"
)

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
