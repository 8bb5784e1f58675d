package collective

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// What callers tell apart, beside those of plan, fabric and elem.
var (
	// ErrArgument is a call that can't be, whatever the other ranks say.
	ErrArgument = errors.New("collective: argument not usable")
	// ErrInconsistent is ranks that ask for different things: a
	// InconsistentError.
	ErrInconsistent = errors.New("collective: ranks don't agree")
	// ErrTimeout is a rank that was waited for in vain.
	ErrTimeout = errors.New("collective: timeout")
	// ErrRetry is a call that failed more often than it may be done again.
	ErrRetry = errors.New("collective: not done again")
	// ErrSuspended is a group that is suspended.
	ErrSuspended = errors.New("collective: suspended")
	// ErrClosed is a group that is closed.
	ErrClosed = errors.New("collective: closed")
)

// Group is some ranks that do collectives. Its methods may be called from any
// goroutine; calls wait for each other, and every rank has to make them in the
// same order.
type Group struct {
	fabric fabric.Fabric
	opts   Options
}

// New makes a group of the ranks of a fabric, which is borrowed. All ranks call
// it.
func New(ctx context.Context, f fabric.Fabric, o Options) (*Group, error) {
	panic("collective: not written yet")
}

// Rank is our own.
func (g *Group) Rank() plan.Rank { return g.fabric.Rank() }

// Size is the number of ranks.
func (g *Group) Size() int { return g.fabric.Size() }

// Share lets the other ranks of this host use a buffer where it is. All ranks
// call it in the same order, each with a buffer of its own. It is no error where
// that can't be; mapped says whether it is so.
func (g *Group) Share(ctx context.Context, b *region.Buffer) (mapped bool, err error) {
	panic("collective: not written yet")
}

// Call is what a rank asks for: a task, and where its elements are.
type Call struct {
	Kind plan.Kind
	// Source and Result are as Kind says. Equal views are in place; for
	// ReduceScatter and AllGather in place is a part inside the whole.
	Source domain.View
	Result domain.View
	Op     elem.Op
	Root   plan.Rank
	// Plan is a plan that was compiled for just this. Nil finds one.
	Plan *plan.Plan
}

// Do does what a call asks for. It allocates nothing once such a call has been
// done before.
//
// Errors: ErrArgument, ErrInconsistent, ErrTimeout, ErrRetry, ErrSuspended,
// ErrClosed; plan.ErrStale; fabric.ErrLink; the devices'; the context's, after
// which the group can only be closed or Reformed.
func (g *Group) Do(ctx context.Context, c *Call) error { panic("collective: not written yet") }

// AllReduce combines the sources of all ranks into the result of each.
func (g *Group) AllReduce(ctx context.Context, result, source domain.View, op elem.Op) error {
	panic("collective: not written yet")
}

// ReduceScatter combines the sources of all ranks; the result of each is its
// plan.Part.
func (g *Group) ReduceScatter(ctx context.Context, result, source domain.View, op elem.Op) error {
	panic("collective: not written yet")
}

// AllGather puts the sources of all ranks behind each other, for all.
func (g *Group) AllGather(ctx context.Context, result, source domain.View) error {
	panic("collective: not written yet")
}

// Broadcast gives all ranks what the root has in v.
func (g *Group) Broadcast(ctx context.Context, v domain.View, root plan.Rank) error {
	panic("collective: not written yet")
}

// Reduce combines the sources of all ranks into the result of the root. The
// others' results are not touched.
func (g *Group) Reduce(ctx context.Context, result, source domain.View, op elem.Op, root plan.Rank) error {
	panic("collective: not written yet")
}

// AllToAll gives each rank its part of every source.
func (g *Group) AllToAll(ctx context.Context, result, source domain.View) error {
	panic("collective: not written yet")
}

// Barrier returns when all ranks have called it. After ErrTimeout, which names
// the ranks that are missing, it can be called again.
func (g *Group) Barrier(ctx context.Context) error { panic("collective: not written yet") }

// Compile makes the plan that a call would be done by, for Call.Plan.
func (g *Group) Compile(c *Call) (*plan.Plan, error) { panic("collective: not written yet") }

// Suspend has every call that begins fail with ErrSuspended, after the one that
// is under way; Resume ends that. All ranks call both.
func (g *Group) Suspend(ctx context.Context) error { panic("collective: not written yet") }

// Resume ends Suspend, once all ranks have called it.
func (g *Group) Resume(ctx context.Context) error { panic("collective: not written yet") }

// Close ends the group. Calls that are under way fail with ErrClosed. The
// fabric stays.
func (g *Group) Close() error { panic("collective: not written yet") }
