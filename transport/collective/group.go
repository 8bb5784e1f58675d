package collective

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// Group is a group of ranks that execute collectives. Its methods may be called from any
// goroutine; calls run one at a time, and every rank must make them in the same order.
type Group struct {
	fabric fabric.Fabric
	opts   Options
	watch  *watchdog
	// closed is set by Close.
	closed atomic.Bool

	mu sync.Mutex
	// guard runs the calls. The pointer never changes; mu guards what it points to, and
	// what the others below point to: dispatcher moves the bytes, planner holds the plan of
	// each call, and shares the callers' buffers that all ranks have mapped.
	guard *guard
	// +checklocks:mu
	dispatcher *dispatcher
	// +checklocks:mu
	planner *planner
	// +checklocks:mu
	shares *shares
	// running is the current call, a field to avoid an allocation. It keeps a Barrier that
	// has ended before its completion: unfinished is then set.
	// +checklocks:mu
	running running
	// +checklocks:mu
	unfinished bool
	// suspended is set by Suspend.
	// +checklocks:mu
	suspended bool
}

// New makes a group of the ranks of a fabric. The fabric is borrowed: the group uses a
// duplicate. All ranks call New in the same order. Groups over one fabric are independent,
// and may be used in turn or concurrently.
func New(ctx context.Context, f fabric.Fabric, o Options) (*Group, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	own, err := f.Duplicate(ctx)
	if err != nil {
		return nil, fmt.Errorf("make a group of %d ranks: %w", f.Size(), err)
	}
	g := newGroup(own, o)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err = g.open(ctx); err != nil {
		g.watch.close()
		return nil, errors.Join(fmt.Errorf("make a group of %d ranks: %w", f.Size(), err), g.closeMemory(ctx), g.fabric.Close())
	}
	return g, nil
}

// newGroup connects the parts of a group. None of them is active yet.
func newGroup(f fabric.Fabric, o Options) *Group {
	g := &Group{fabric: f, opts: o, watch: newWatchdog(f, &o)}
	seq, meet := newSequence(), &hostSync{fabric: f, watch: g.watch}
	messages := &messenger{fabric: f, watch: g.watch, seq: seq}
	exec := newExecutor(f, seq, meet, g.watch, &o)
	memory := &scratch{table: region.NewTable(nil)}
	common := &shares{fabric: f, watch: g.watch}
	windows := &slots{fabric: f, seq: seq, sync: meet}
	pass := &passPath{fabric: f, table: memory.table, shares: common, sync: meet, watch: g.watch, folder: exec.folder}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shares = common
	g.planner = &planner{places: f, opts: &g.opts, calls: map[callKey]*prepared{}}
	g.dispatcher = &dispatcher{
		window: windowPath{slots: windows, exec: exec},
		direct: directPath{slots: windows, shares: common, pass: pass, exec: exec},
		pass:   pass, exec: exec, scratch: memory, planner: g.planner, sync: meet,
	}
	g.guard = &guard{
		fabric: f, opts: &g.opts, watch: g.watch, seq: seq, messages: messages, sync: meet,
		recovery:   recovery{fabric: f, watch: g.watch, seq: seq, messages: messages, timeout: o.Timeout},
		keeper:     &keeper{enabled: o.KeepSource && o.Retry >= 0, rank: f.Rank()},
		dispatcher: g.dispatcher, frames: rows(f.Size(), frameSize),
	}
	return g
}

// open starts the watchdog, compares options, maps the windows and measures the costs. All
// ranks call it.
//
// Errors: an InconsistentError; those of exchange.
//
// +checklocks:g.mu
func (g *Group) open(ctx context.Context) error {
	g.watch.start()
	if err := compareOptions(ctx, g.guard.messages, &g.opts); err != nil {
		return err
	}
	windows := g.dispatcher.window.slots
	if err := windows.open(ctx, g.shares, g.dispatcher.scratch.table); err != nil {
		return err
	}
	g.planner.windowed = windows.window != nil
	if c := g.opts.Costs; c != nil {
		g.planner.costs = *c
		return nil
	}
	c := calibration{places: g.fabric, seq: g.guard.seq, messages: g.guard.messages, exec: g.dispatcher.exec, scratch: g.dispatcher.scratch}
	costs, err := c.run(ctx)
	g.planner.costs = costs
	return err
}

// Rank returns our own rank.
func (g *Group) Rank() plan.Rank { return g.fabric.Rank() }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.fabric.Size() }

// Do executes a call. It does not allocate once such a call has been made before.
//
// Errors: ErrArgument, ErrInconsistent, ErrTimeout, ErrRetry, ErrSuspended, ErrClosed;
// plan.ErrStale; fabric.ErrLink; the devices'; the context's, after which the next call
// first makes the links anew, except for a Barrier that it continues.
func (g *Group) Do(ctx context.Context, c *Call) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.doCall(ctx, c)
	if c.Done != nil {
		c.Done.Set(err)
	}
	return err
}

// doCall implements Do. A call that fails is counted, whatever the error: the other ranks
// may be in it.
//
// +checklocks:g.mu
func (g *Group) doCall(ctx context.Context, c *Call) error {
	if err := g.admit(); err != nil {
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
			err = fmt.Errorf("wait for the event before %v: %w", c.Kind, err)
			if !resumed { // otherwise the Barrier that it continues has a number already
				err = errors.Join(err, g.guard.skip())
			}
			return err
		}
	}
	if !resumed {
		if g.unfinished {
			g.closeCall(ctx)
		}
		if err := g.openCall(ctx, c); err != nil {
			g.unfinished = false
			return errors.Join(err, g.guard.skip())
		}
	}
	r.resumed, g.unfinished = resumed, false
	err := g.guard.call(ctx, r)
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

// admit returns an error if the group accepts no call now. Such a call is not counted:
// ranks may make different numbers of them.
//
// Errors: ErrClosed; ErrSuspended.
//
// +checklocks:g.mu
func (g *Group) admit() error {
	switch {
	case g.closed.Load():
		return ErrClosed
	case g.suspended:
		return ErrSuspended
	}
	return nil
}

// openCall prepares the request and the plan of a call.
//
// +checklocks:g.mu
func (g *Group) openCall(ctx context.Context, c *Call) error {
	r, rank := &g.running, g.Rank()
	var err error
	if r.repeats(c) {
		err = r.again(c, rank)
	} else {
		*r = running{call: *c}
		if r.task, err = c.task(g.planner.places, g.opts.Strict); err != nil {
			return err
		}
		if err = r.hold(ctx, rank); err == nil {
			err = r.prepare(g.planner)
		}
	}
	if err != nil {
		g.closeCall(ctx)
	}
	return err
}

// closeCall releases the memory of a call.
//
// +checklocks:g.mu
func (g *Group) closeCall(ctx context.Context) {
	g.running.drop()
	g.guard.keeper.drop()
	g.dispatcher.scratch.trim(ctx, g.opts.Buffer)
}

// convene performs an exchange that is a call of its own.
//
// +checklocks:g.mu
func (g *Group) convene(ctx context.Context, why purpose, mine []byte, all [][]byte) error {
	if g.unfinished {
		// A Barrier after this call is a new one.
		g.unfinished = false
		g.closeCall(ctx)
	}
	return g.guard.exchange(ctx, why, mine, all)
}

// AllReduce combines the sources of all ranks into the result of each.
func (g *Group) AllReduce(ctx context.Context, result, source domain.View, op elem.Op) error {
	return g.Do(ctx, &Call{Kind: plan.AllReduce, Result: result, Source: source, Op: op})
}

// ReduceScatter combines the sources of all ranks; the result of each rank is its
// plan.Part.
func (g *Group) ReduceScatter(ctx context.Context, result, source domain.View, op elem.Op) error {
	return g.Do(ctx, &Call{Kind: plan.ReduceScatter, Result: result, Source: source, Op: op})
}

// AllGather concatenates the sources of all ranks; every rank receives the result.
func (g *Group) AllGather(ctx context.Context, result, source domain.View) error {
	return g.Do(ctx, &Call{Kind: plan.AllGather, Result: result, Source: source})
}

// Broadcast copies the root's elements in v to all ranks.
func (g *Group) Broadcast(ctx context.Context, v domain.View, root plan.Rank) error {
	return g.Do(ctx, &Call{Kind: plan.Broadcast, Result: v, Source: v, Root: root})
}

// Reduce combines the sources of all ranks into the result of the root. The results of
// other ranks are not modified.
func (g *Group) Reduce(ctx context.Context, result, source domain.View, op elem.Op, root plan.Rank) error {
	return g.Do(ctx, &Call{Kind: plan.Reduce, Result: result, Source: source, Op: op, Root: root})
}

// AllToAll sends each rank its part of every source.
func (g *Group) AllToAll(ctx context.Context, result, source domain.View) error {
	return g.Do(ctx, &Call{Kind: plan.AllToAll, Result: result, Source: source})
}

// Barrier returns when all ranks have called it. After ErrTimeout, which names the missing
// ranks, it can be called again, unless the error is also ErrRetry: then that Barrier has
// failed at all ranks.
func (g *Group) Barrier(ctx context.Context) error {
	return g.Do(ctx, &Call{Kind: plan.Barrier})
}

// Share lets the other ranks of this host use a buffer in place. All ranks call it in the
// same order, each with its own buffer. mapped reports whether they can; a fabric that
// cannot map memory is not an error.
func (g *Group) Share(ctx context.Context, b *region.Buffer) (mapped bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() {
		return false, ErrClosed
	}
	return g.shares.add(ctx, b)
}

// Unshare undoes Share, so that the buffer can be closed before the group. All ranks call
// it in the same order, between the same calls. It ignores a buffer that is not shared.
func (g *Group) Unshare(b *region.Buffer) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shares.remove(b)
}

// Compile returns the plan by which a call would be executed, for Call.Plan.
func (g *Group) Compile(c *Call) (*plan.Plan, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, err := c.task(g.planner.places, g.opts.Strict)
	if err != nil {
		return nil, err
	}
	w, err := g.planner.choose(t, g.planner.windowed)
	if err != nil {
		return nil, err
	}
	return w.plan, nil
}

// Costs returns the costs by which the group chooses plans: the same at all ranks.
func (g *Group) Costs() plan.Costs {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.planner.costs
}

// Close ends the group. Current calls fail with ErrClosed, and ranks that wait for this one
// get an error. The fabric passed to New stays open.
func (g *Group) Close() error {
	if g.closed.Swap(true) {
		return nil
	}
	g.watch.close()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.unfinished {
		g.closeCall(context.Background())
	}
	return errors.Join(g.closeMemory(context.Background()), g.fabric.Close())
}

// closeMemory frees the memory of the group.
//
// +checklocks:g.mu
func (g *Group) closeMemory(ctx context.Context) error {
	g.planner.windowed = false
	return errors.Join(g.shares.close(), g.dispatcher.close(ctx))
}
