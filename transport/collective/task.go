package collective

import (
	"fmt"

	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// taskOf says what a call asks for, and finds out whether its views are as long
// as that takes.
func (g *Group) taskOf(c *Call) (plan.Task, error) {
	t := plan.Task{Kind: c.Kind, Ranks: g.Size(), Op: c.Op, Root: c.Root, Strict: g.opts.Strict}
	whole := c.Source
	if c.Kind == plan.AllGather || c.Kind == plan.Broadcast {
		whole = c.Result
	}
	if c.Kind != plan.Barrier {
		t.Count, t.Type = whole.Count(), whole.Type()
	}
	if !c.Kind.Known() {
		return t, fmt.Errorf("%w: there is no %v", ErrArgument, c.Kind)
	}
	rank := g.Rank()
	if err := fits("source", c.Source, &t, t.SourceLen(rank)); err != nil {
		return t, err
	}
	return t, fits("result", c.Result, &t, t.ResultLen(rank))
}

// fits compares a view with what a task needs. What is not needed is not looked
// at.
func fits(name string, v domain.View, t *plan.Task, count uint64) error {
	switch {
	case count == 0:
		return nil
	case v.Count() != count:
		return fmt.Errorf("%w: the %s of %v has %d elements, not %d", ErrArgument, name, t.Kind, v.Count(), count)
	case v.Type() != t.Type:
		return fmt.Errorf("%w: the %s of %v is of %v, not %v", ErrArgument, name, t.Kind, v.Type(), t.Type)
	}
	return nil
}
