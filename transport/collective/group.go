package collective

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/devices"
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
	// ErrRetry reports a call that failed and is not repeated, as a RetryError. The
	// rank continues with its next call.
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
	guard  guard
	// closed is set by Close.
	closed atomic.Bool

	mu sync.Mutex
	// loop is the run of now.
	// +checklocks:mu
	loop *loop
	// calls are the calls that were made before, and what was found out for
	// them.
	// +checklocks:mu
	calls map[callKey]*prepared
	// running is the call of now, kept because it takes no memory then. A
	// Barrier that was left before its end stays in it: unfinished.
	// +checklocks:mu
	running running
	// +checklocks:mu
	unfinished bool
	// setting says that our counter was set for the Sync of now.
	// +checklocks:mu
	setting bool
	// pass is areas for memory that the host does not see.
	// +checklocks:mu
	pass passing
	// own is our own memory.
	// +checklocks:mu
	own own
	// window is the part of the group's own memory that all ranks have mapped; nil where
	// they map none. shares lists the shared buffers in order, and shareCount
	// counts the calls of Share.
	// +checklocks:mu
	window *shared
	// +checklocks:mu
	shares []*shared
	// +checklocks:mu
	shareCount uint64
	// costs are those by which calls choose: the same at all ranks.
	// +checklocks:mu
	costs plan.Costs
}

// New makes a group of the ranks of a fabric, which is borrowed: the group uses a
// duplicate. All ranks call it in the same order. Groups over one fabric may be made
// one after the other and side by side, and are independent.
func New(ctx context.Context, f fabric.Fabric, o Options) (*Group, error) {
	g := &Group{opts: o.withDefaults(), calls: map[callKey]*prepared{}}
	if err := g.opts.check(); err != nil {
		return nil, err
	}
	var err error
	if g.fabric, err = f.Duplicate(ctx); err != nil {
		return nil, fmt.Errorf("make a group of %d ranks: %w", f.Size(), err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.loop = newLoop(g)
	g.own.table = region.NewTable(nil)
	if err = g.startGuard(ctx); err == nil {
		err = g.openWindow(ctx)
	}
	if err == nil {
		err = g.calibrate(ctx)
	}
	if err != nil {
		g.endGuard()
		return nil, errors.Join(fmt.Errorf("make a group of %d ranks: %w", f.Size(), err), g.closeMemory(ctx), g.fabric.Close())
	}
	return g, nil
}

// Rank is our own.
func (g *Group) Rank() plan.Rank { return g.fabric.Rank() }

// Size is the number of ranks.
func (g *Group) Size() int { return g.fabric.Size() }

// Call is the request of a rank: a task, and where its elements are.
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
	// After has to happen before the source is read or the result written, and
	// Done is set when the call is over, by its error. Nil is none. They are this
	// rank's own matter.
	After devices.Event
	Done  *devices.Signal
}

// Do does what a call asks for. It allocates nothing once such a call has been
// done before.
//
// Errors: ErrArgument, ErrInconsistent, ErrTimeout, ErrRetry, ErrSuspended,
// ErrClosed; plan.ErrStale; fabric.ErrLink; the devices'; the context's, after
// which the group can only be closed or Reformed.
func (g *Group) Do(ctx context.Context, c *Call) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.doCall(ctx, c)
	if c.Done != nil {
		c.Done.Set(err)
	}
	return err
}

// doCall implements Do. A call that fails is counted, whatever the error: the other
// ranks may be in it.
//
// +checklocks:g.mu
func (g *Group) doCall(ctx context.Context, c *Call) error {
	if err := g.admit(false); err != nil {
		return err
	}
	var began time.Time
	if g.opts.Observe != nil {
		began = time.Now()
	}
	r := &g.running
	resumed := g.unfinished && c.Kind == plan.Barrier
	if c.After != nil {
		if err := c.After.Wait(ctx); err != nil {
			return errors.Join(fmt.Errorf("wait for what comes before %v: %w", c.Kind, err), g.miss(resumed))
		}
	}
	if !resumed {
		if g.unfinished {
			g.closeCall(ctx)
		}
		if err := g.openCall(ctx, c); err != nil {
			g.unfinished = false
			return errors.Join(err, g.miss(false))
		}
	}
	r.resumed, g.unfinished = resumed, false
	err := g.guarded(ctx, r)
	g.unfinished = err != nil && c.Kind == plan.Barrier && !errors.Is(err, ErrRetry) && (errors.Is(err, ErrTimeout) || ctx.Err() != nil)
	if !g.unfinished {
		g.closeCall(ctx)
	}
	if err == nil && g.opts.Observe != nil {
		r.report.Measured = time.Since(began)
		g.opts.Observe(&r.report)
	}
	return err
}

// miss counts a call that fails before it begins, unless it continues a Barrier, which
// has a number already.
func (g *Group) miss(numbered bool) error {
	if numbered {
		return nil
	}
	g.guard.resumable = false
	return g.number()
}

// AllReduce combines the sources of all ranks into the result of each.
func (g *Group) AllReduce(ctx context.Context, result, source domain.View, op elem.Op) error {
	return g.Do(ctx, &Call{Kind: plan.AllReduce, Result: result, Source: source, Op: op})
}

// ReduceScatter combines the sources of all ranks; the result of each is its
// plan.Part.
func (g *Group) ReduceScatter(ctx context.Context, result, source domain.View, op elem.Op) error {
	return g.Do(ctx, &Call{Kind: plan.ReduceScatter, Result: result, Source: source, Op: op})
}

// AllGather puts the sources of all ranks behind each other, for all.
func (g *Group) AllGather(ctx context.Context, result, source domain.View) error {
	return g.Do(ctx, &Call{Kind: plan.AllGather, Result: result, Source: source})
}

// Broadcast gives all ranks what the root has in v.
func (g *Group) Broadcast(ctx context.Context, v domain.View, root plan.Rank) error {
	return g.Do(ctx, &Call{Kind: plan.Broadcast, Result: v, Source: v, Root: root})
}

// Reduce combines the sources of all ranks into the result of the root. The
// others' results are not touched.
func (g *Group) Reduce(ctx context.Context, result, source domain.View, op elem.Op, root plan.Rank) error {
	return g.Do(ctx, &Call{Kind: plan.Reduce, Result: result, Source: source, Op: op, Root: root})
}

// AllToAll gives each rank its part of every source.
func (g *Group) AllToAll(ctx context.Context, result, source domain.View) error {
	return g.Do(ctx, &Call{Kind: plan.AllToAll, Result: result, Source: source})
}

// Barrier returns when all ranks have called it. After ErrTimeout, which names the
// ranks that are missing, it can be called again, unless the error is ErrRetry too:
// then that Barrier has failed at all ranks.
func (g *Group) Barrier(ctx context.Context) error {
	return g.Do(ctx, &Call{Kind: plan.Barrier})
}

// Close ends the group. Current calls fail with ErrClosed, and ranks that wait for this
// one get an error. The fabric that New was given stays open.
func (g *Group) Close() error {
	if g.closed.Swap(true) {
		return nil
	}
	g.endGuard()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.unfinished {
		g.closeCall(context.Background())
	}
	return errors.Join(g.closeMemory(context.Background()), g.fabric.Close())
}

// Costs returns what the group has measured, by which it chooses: the same at all
// ranks.
func (g *Group) Costs() plan.Costs {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.costs
}
