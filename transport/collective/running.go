package collective

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// running is a call in progress.
type running struct {
	call Call
	task plan.Task
	// plan is the plan of the call.
	plan   *plan.Plan
	report Report
	// resumed reports that this is a Barrier that was interrupted, and continues.
	resumed bool
	// unseen reports that the host can't access the memory of some rank.
	unseen bool
	// apart reports that the ranks' states of the areas of passPath differ.
	apart bool

	prepared *prepared
	// zeroCopy reports that ranks may have sent without copying: the call ends only when all
	// have received everything.
	zeroCopy bool
	// plain reports that source and result are host memory.
	plain          bool
	source, result memory
}

// hold holds the call's views, and determines whether it is in place.
func (r *running) hold(ctx context.Context, rank plan.Rank) error {
	t := &r.task
	source, result := r.call.Source, r.call.Result
	if t.Kind == plan.Broadcast && source.Buffer() == nil {
		source = result
	}
	if t.SourceLen(rank) == 0 {
		source = domain.View{}
	}
	if t.ResultLen(rank) == 0 {
		result = domain.View{}
	}
	err := r.source.hold(source)
	if err == nil {
		err = r.result.hold(result)
	}
	if err == nil {
		t.InPlace, err = inPlace(t, rank, source, result)
	}
	if err != nil {
		return err
	}
	access := devices.ReadOnly
	if t.InPlace {
		access = devices.ReadWrite
	}
	if err = r.source.show(ctx, access); err != nil {
		return err
	}
	if err = r.result.show(ctx, devices.ReadWrite); err != nil {
		return err
	}
	if err = r.aligned(); err != nil || t.Kind != plan.Broadcast {
		return err
	}
	return r.rootCopies(ctx, rank)
}

// rootCopies makes every Broadcast one in place, as it always is for ranks other than the
// root.
func (r *running) rootCopies(ctx context.Context, rank plan.Rank) error {
	t := &r.task
	if rank == t.Root && !t.InPlace && t.Count > 0 {
		to, from := r.call.Result, &r.source
		if err := region.Copy(ctx, to.Buffer(), to.Offset(), from.held, from.view.Offset(), from.view.Size()); err != nil {
			return err
		}
		r.source.drop()
		if err := r.source.hold(r.call.Result); err != nil {
			return err
		}
		if err := r.source.show(ctx, devices.ReadWrite); err != nil {
			return err
		}
	}
	t.InPlace = true
	return nil
}

// aligned rejects elements that are not aligned to their size.
func (r *running) aligned() error {
	if !r.task.Kind.Combines() {
		return nil
	}
	for _, m := range []*memory{&r.source, &r.result} {
		if len(m.bytes) > 0 && address(m.bytes)%r.task.Type.Size() != 0 {
			return fmt.Errorf("%w: a view of type %v is not aligned to its element size", ErrArgument, r.task.Type)
		}
	}
	return nil
}

func (r *running) drop() {
	r.source.drop()
	r.result.drop()
}

// fresh returns the report of a new call, and sets its plan.
func (r *running) fresh() Report {
	w := cmp.Or(r.prepared.direct, r.prepared.stream)
	r.plan = w.plan
	return Report{Task: r.task, Algorithm: w.plan.Algorithm, Because: w.because, Predicted: w.predicted}
}

// prepare determines how the call is executed, and begins its report.
func (r *running) prepare(p *planner) error {
	key := callKey{task: r.task, staged: stagingOf(&r.task, r.source.staged, r.result.staged), plan: r.call.Plan}
	have, err := p.prepared(key)
	if err != nil {
		return err
	}
	r.prepared = have
	r.plain = r.call.Kind != plan.Broadcast && r.source.plain() && r.result.plain()
	r.report = r.fresh()
	return nil
}

// repeats reports that a call is the same as the previous one, on host memory, which does
// not move: then everything is known already.
func (r *running) repeats(c *Call) bool {
	b := &r.call
	return r.plain && r.prepared != nil && b.Kind == c.Kind && b.Op == c.Op && b.Root == c.Root && b.Plan == c.Plan &&
		b.Source == c.Source && b.Result == c.Result
}

// again prepares the call for one that repeats it.
func (r *running) again(c *Call, rank plan.Rank) error {
	r.call, r.resumed, r.zeroCopy = *c, false, false
	err := r.source.again(r.task.SourceLen(rank), c.Source)
	if err == nil {
		err = r.result.again(r.task.ResultLen(rank), c.Result)
	}
	if err != nil {
		return err
	}
	r.report = r.fresh()
	return nil
}

// total returns the size, in bytes, of the elements of the call's task.
func (r *running) total() uint64 { return r.task.Count * r.task.Type.Size() }

// overwrites reports whether the call may modify its source before it ends: one that does not
// combine writes only other ranks' elements.
func (r *running) overwrites(rank plan.Rank) bool {
	t := &r.task
	return t.InPlace && t.Ranks > 1 && t.Kind.Combines() && (t.Kind != plan.Reduce || t.Root == rank)
}
