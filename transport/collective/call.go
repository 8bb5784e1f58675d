package collective

import (
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// Call is the request of a rank: a task, and the views of its elements.
type Call struct {
	Kind plan.Kind
	// Source and Result are as Kind requires. Equal views are in place; for ReduceScatter
	// and AllGather, in place means that the part is inside the whole.
	Source domain.View
	Result domain.View
	Op     elem.Op
	Root   plan.Rank
	// Plan is a plan compiled for exactly this call. If nil, the group chooses one.
	Plan *plan.Plan
	// After, if set, is an event to wait for before the source is read or the result
	// written. Done, if set, is completed with the call's error. Both are local to this
	// rank.
	After devices.Event
	Done  *devices.Signal
}

// task returns the task of a call for a rank of a fabric, and checks the lengths of its
// views.
//
// Errors: ErrArgument.
func (c *Call) task(at fabric.Places, strict bool) (plan.Task, error) {
	t := plan.Task{Kind: c.Kind, Ranks: at.Size(), Op: c.Op, Root: c.Root, Strict: strict}
	whole := c.Source
	if c.Kind == plan.AllGather || c.Kind == plan.Broadcast {
		whole = c.Result
	}
	if c.Kind != plan.Barrier {
		t.Count, t.Type = whole.Count(), whole.Type()
	}
	if !c.Kind.Known() {
		return t, fmt.Errorf("%w: unknown %v", ErrArgument, c.Kind)
	}
	rank := at.Rank()
	if err := fits("source", c.Source, &t, t.SourceLen(rank)); err != nil {
		return t, err
	}
	return t, fits("result", c.Result, &t, t.ResultLen(rank))
}

// fits compares a view with the elements that a task needs. A view that is not needed is
// ignored.
func fits(name string, v domain.View, t *plan.Task, count uint64) error {
	switch {
	case count == 0:
		return nil
	case v.Count() != count:
		return fmt.Errorf("%w: the %s of %v has %d elements instead of %d", ErrArgument, name, t.Kind, v.Count(), count)
	case v.Type() != t.Type:
		return fmt.Errorf("%w: the %s of %v has type %v instead of %v", ErrArgument, name, t.Kind, v.Type(), t.Type)
	}
	return nil
}
