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
	// control has the records and votes that are read and written.
	control *region.Buffer
	slots   []*slot
	// changed is told of every change of what mu guards.
	changed *sync.Cond
	// stop ends group calls that are under way, and stopped waits for the
	// goroutines.
	stop    context.CancelFunc
	stopped sync.WaitGroup
	window  *time.Timer

	mu sync.Mutex
	// items are the tensors that are not done; the first is number done+1.
	// +checklocks:mu
	items queue[domain.View]
	// added, agreed and done are the last tensors that were added, that are in
	// a bucket, and that are reduced.
	// +checklocks:mu
	added Ticket
	// +checklocks:mu
	agreed Ticket
	// +checklocks:mu
	done Ticket
	// cutter and cuts are the leader's: where the next buckets end.
	// +checklocks:mu
	cutter cutter
	// +checklocks:mu
	cuts queue[cut]
	// packer has what is being packed.
	// +checklocks:mu
	packer packer
	// closing is set by Close, and err by whatever goes wrong.
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

// New makes a fuser. All ranks call it. The group is borrowed, and nobody else
// calls it until Close. The table is where the buffers are registered; tensors
// may be of any table with the same engine.
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
	full := make(chan bucket, len(f.slots))
	f.stopped.Go(func() { f.packAll(run) })
	f.stopped.Go(func() { f.unpackAll(run, full) })
	f.stopped.Go(func() {
		defer close(full)
		f.reduceAll(run, full)
	})
	return f, nil
}

// alloc takes the memory that the fuser has.
func (f *Fuser) alloc(ctx context.Context, table *region.Table) error {
	var err error
	if f.control, err = table.Alloc(devices.Size(recordSize + f.group.Size()*voteSize)); err != nil {
		return fmt.Errorf("take memory for records: %w", err)
	}
	for range f.opts.Buffers {
		b, err := table.Alloc(f.opts.Capacity)
		if err != nil {
			return fmt.Errorf("take memory for buckets: %w", err)
		}
		s := &slot{buffer: b}
		f.slots = append(f.slots, s)
		f.mu.Lock()
		f.packer.idle.push(s)
		f.mu.Unlock()
		if _, err := f.group.Share(ctx, b); err != nil {
			return fmt.Errorf("share memory for buckets: %w", err)
		}
	}
	return nil
}

// free gives the memory back.
func (f *Fuser) free(ctx context.Context) error {
	var faults []error
	end := func(b *region.Buffer) {
		faults = append(faults, f.group.Unshare(b), b.Close(ctx))
	}
	for _, s := range f.slots {
		end(s.buffer)
	}
	if f.control != nil {
		end(f.control)
	}
	return errors.Join(faults...)
}

// Add takes a tensor, which is reduced in place: nobody may touch it until Wait
// has returned. It does not wait, and allocates nothing in the long run.
//
// Errors: ErrArgument for a tensor of another type; ErrClosed; whatever the
// fuser has failed with.
func (f *Fuser) Add(v domain.View) (Ticket, error) {
	if v.Type() != f.opts.Type || v.Buffer() == nil {
		return 0, fmt.Errorf("add %s to a fuser of %s: %w", v.Type(), f.opts.Type, ErrArgument)
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

// cutLocked finds the cuts that a tensor brings with it, and has the window
// begin with the first one of a bucket.
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

// windowOver cuts because of the time. Who had the lock before may have cut
// already, and begun another bucket: a bucket then ends early, at all ranks.
func (f *Fuser) windowOver() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flushLocked(Window)
}

// flushLocked cuts behind the last tensor.
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

// Flush has everything that was added reduced now, and waits for it. It is the
// leader's that cuts: the others' wait until the leader flushes, or its window
// is over.
func (f *Fuser) Flush(ctx context.Context) error {
	f.mu.Lock()
	f.flushLocked(Flush)
	last := f.added
	f.mu.Unlock()
	return f.Wait(ctx, last)
}

// Wait waits until a tensor is reduced.
//
// Errors: the context's; whatever the fuser has failed with, which it does for
// all tensors that are not done, for good: close it then.
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
		return fmt.Errorf("wait for tensor %d of %d: %w", t, f.added, ErrArgument)
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

// Close reduces what was added, and ends the fuser. All ranks call it. When the
// context ends first, what is under way is given up.
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

// fail ends the fuser with an error; nil is its proper end.
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

// view is n bytes of a buffer as elements.
func view(b *region.Buffer, off, n uint64, t elem.Type) (domain.View, error) {
	return domain.NewView(b, devices.Offset(off), t, n/t.Size())
}
