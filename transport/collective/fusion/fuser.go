package fusion

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// Ticket is the number of a tensor, from 1.
type Ticket uint64

// Fuser reduces tensors in buckets. Its methods may be called from any
// goroutine; the order of Add is the order of the tensors.
type Fuser struct {
	group Group
	opts  Options
	limits
	leads bool
	// control holds the records and votes that are exchanged.
	control *region.Buffer
	// buffers are the memory of buckets.
	buffers []*region.Buffer
	// changed is broadcast on every change of the state that mu guards.
	changed *sync.Cond
	// stop cancels current group calls, and stopped waits for the goroutines.
	stop    context.CancelFunc
	stopped sync.WaitGroup
	window  *time.Timer

	mu sync.Mutex
	// items are the tensors that are not done; the first has the number done+1.
	// +checklocks:mu
	items queue[domain.View]
	// added, agreed and done are the last tensors that were added, assigned to a bucket,
	// and reduced.
	// +checklocks:mu
	added Ticket
	// +checklocks:mu
	agreed Ticket
	// +checklocks:mu
	done Ticket
	// cutter and cuts are used by the leader only: where the next buckets end.
	// +checklocks:mu
	cutter cutter
	// +checklocks:mu
	cuts queue[cut]
	// packer is the state of the bucket being packed.
	// +checklocks:mu
	packer packer
	// closing is set by Close, and err by any failure.
	// +checklocks:mu
	closing bool
	// +checklocks:mu
	err error
}

// cut is the end of a bucket.
type cut struct {
	last   Ticket
	reason Reason
}

// New makes a fuser. All ranks call it. The group is borrowed; it must have no other user
// until Close. The buffers are registered in table; tensors may be of any table with the
// same engine.
//
// Errors: ErrArgument; those of region and the group.
func New(ctx context.Context, g Group, table *region.Table, o Options) (*Fuser, error) {
	o.EnsureDefaults()
	if err := o.Validate(g.Size()); err != nil {
		return nil, err
	}
	l := limits{bytes: uint64(o.Bytes), capacity: uint64(o.Capacity), split: len(o.Ends) > 0}
	f := &Fuser{group: g, opts: o, limits: l, leads: g.Rank() == o.Leader, cutter: cutter{limits: l, ends: o.Ends}}
	f.changed = sync.NewCond(&f.mu)
	if err := f.alloc(ctx, table); err != nil {
		return nil, errors.Join(err, f.free(ctx))
	}
	f.window = time.AfterFunc(time.Hour, f.windowOver)
	f.window.Stop()
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	full := make(chan bucket, len(f.buffers))
	f.stopped.Go(func() { f.packAll(run) })
	f.stopped.Go(func() { f.unpackAll(run, full) })
	f.stopped.Go(func() {
		defer close(full)
		f.reduceAll(run, full)
	})
	return f, nil
}

// alloc allocates and shares the memory of the fuser.
func (f *Fuser) alloc(ctx context.Context, table *region.Table) error {
	var err error
	if f.control, err = table.Alloc(devices.Size(recordSize + f.group.Size()*voteSize)); err != nil {
		return fmt.Errorf("allocate memory for records: %w", err)
	}
	for range f.opts.Buffers {
		b, err := table.Alloc(f.opts.Capacity)
		if err != nil {
			return fmt.Errorf("allocate memory for buckets: %w", err)
		}
		f.buffers = append(f.buffers, b)
		f.mu.Lock()
		f.packer.idle.push(b)
		f.mu.Unlock()
		if _, err := f.group.Share(ctx, b); err != nil {
			return fmt.Errorf("share memory for buckets: %w", err)
		}
	}
	return nil
}

func (f *Fuser) free(ctx context.Context) error {
	var faults []error
	end := func(b *region.Buffer) {
		faults = append(faults, f.group.Unshare(b), b.Close(ctx))
	}
	for _, b := range f.buffers {
		end(b)
	}
	if f.control != nil {
		end(f.control)
	}
	return errors.Join(faults...)
}

// Add adds a tensor, which is reduced in place: it must not be accessed until Wait has
// returned. Add does not wait, and in the steady state does not allocate.
//
// Errors: ErrArgument for a tensor of another type; ErrClosed; the error with which the
// fuser has failed.
func (f *Fuser) Add(v domain.View) (Ticket, error) {
	if v.Type() != f.opts.Type || v.Buffer() == nil {
		return 0, fmt.Errorf("add a tensor of type %s to a fuser of type %s: %w", v.Type(), f.opts.Type, ErrArgument)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return 0, f.err
	}
	if f.closing {
		return 0, ErrClosed
	}
	f.added++
	f.items.push(v)
	if f.leads {
		f.cutLocked(uint64(v.Size()))
	}
	f.changed.Broadcast()
	return f.added, nil
}

// cutLocked records the cuts caused by a tensor, and starts the window with the first
// tensor of a bucket.
//
// +checklocks:f.mu
func (f *Fuser) cutLocked(size uint64) {
	before, after := f.cutter.add(size)
	if before != 0 {
		f.cuts.push(cut{f.added - 1, before})
	}
	if after != 0 {
		f.cuts.push(cut{f.added, after})
	}
	if f.opts.Window < 0 || f.split {
		return
	}
	switch f.cutter.count {
	case 1:
		f.window.Reset(f.opts.Window)
	case 0:
		f.window.Stop()
	}
}

// windowOver cuts because the window is over. If a cut has been made in the meantime, and
// another bucket begun, that bucket ends early, at all ranks.
func (f *Fuser) windowOver() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flushLocked(Window)
}

// flushLocked cuts after the last tensor.
//
// +checklocks:f.mu
func (f *Fuser) flushLocked(reason Reason) {
	if !f.leads || f.cutter.count == 0 {
		return
	}
	f.cutter.cut()
	f.cuts.push(cut{f.added, reason})
	f.changed.Broadcast()
}

// Flush reduces all tensors added so far, and waits for that. Only the leader cuts: the
// tensors of other ranks wait until the leader flushes, or its window is over.
func (f *Fuser) Flush(ctx context.Context) error {
	f.mu.Lock()
	f.flushLocked(Flush)
	last := f.added
	f.mu.Unlock()
	return f.Wait(ctx, last)
}

// Wait waits until a tensor is reduced.
//
// Errors: the context's; the error with which the fuser has failed. Such an error is
// permanent and applies to all tensors that are not done: close the fuser.
func (f *Fuser) Wait(ctx context.Context, t Ticket) error {
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.changed.Broadcast()
		})()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if t > f.added {
		return fmt.Errorf("wait for tensor %d, but only %d were added: %w", t, f.added, ErrArgument)
	}
	for f.done < t {
		if f.err != nil {
			return f.err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for tensor %d: %w", t, err)
		}
		f.changed.Wait()
	}
	return nil
}

// Close reduces the remaining tensors, and ends the fuser. All ranks call it. If the
// context ends first, operations in progress are cancelled.
func (f *Fuser) Close(ctx context.Context) error {
	f.mu.Lock()
	f.flushLocked(Flush)
	f.closing = true
	f.changed.Broadcast()
	f.mu.Unlock()
	defer context.AfterFunc(ctx, f.stop)()
	defer context.AfterFunc(ctx, func() { f.fail(context.Cause(ctx)) })()
	f.stopped.Wait()
	f.stop()
	f.window.Stop()
	f.mu.Lock()
	err := f.err
	f.err = errors.Join(ErrClosed, err)
	f.mu.Unlock()
	if errors.Is(err, ErrClosed) {
		err = nil
	}
	return errors.Join(err, f.free(context.WithoutCancel(ctx)))
}

// fail ends the fuser with an error; nil is its regular end.
func (f *Fuser) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
		if err == nil {
			f.err = ErrClosed
		}
	}
	f.changed.Broadcast()
}

// view returns n bytes of a buffer as elements.
func view(b *region.Buffer, off, n uint64, t elem.Type) (domain.View, error) {
	return domain.NewView(b, devices.Offset(off), t, n/t.Size())
}
