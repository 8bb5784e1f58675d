package fusion

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
)

// reduceAll agrees on one bucket after the other and reduces it.
func (f *Fuser) reduceAll(ctx context.Context, full chan<- bucket) {
	for {
		b, more, err := f.nextBucket(ctx)
		if err == nil && more {
			err = f.reduce(ctx, b)
		}
		if err != nil {
			f.fail(err)
			return
		}
		if !more {
			return
		}
		select {
		case full <- b:
		case <-ctx.Done():
		}
	}
}

// nextBucket agrees with the other ranks on a bucket, and waits until it is packed. more is
// false at the end.
func (f *Fuser) nextBucket(ctx context.Context) (b bucket, more bool, err error) {
	mine, err := f.decide()
	if err != nil {
		return bucket{}, false, err
	}
	r, err := f.announce(ctx, mine)
	if err != nil {
		return bucket{}, false, err
	}
	b, v, err := f.gather(r)
	if err != nil {
		return bucket{}, false, err
	}
	if err := f.compare(ctx, r, v); err != nil {
		return bucket{}, false, err
	}
	return b, !r.end, nil
}

// decide waits for something to reduce, and returns the leader's record. The other ranks
// wait for a tensor of their own, so that they do not wait in a call of the group while
// they are idle.
func (f *Fuser) decide() (record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.err == nil {
		next := f.agreed + 1
		switch {
		case !f.leads && (f.added >= next || f.closing):
			return record{}, nil
		case f.leads && f.cuts.len() > 0:
			c := f.cuts.at(0)
			f.cuts.drop(1)
			return record{reason: c.reason, first: next, last: c.last}, nil
		case f.leads && f.closing:
			return record{reason: Flush, end: true, first: next, last: f.agreed}, nil
		}
		f.changed.Wait()
	}
	return record{}, f.err
}

// announce sends the leader's record to all ranks.
func (f *Fuser) announce(ctx context.Context, mine record) (record, error) {
	v, err := view(f.control, 0, recordSize, elem.Uint8)
	if err != nil {
		return record{}, err
	}
	p := f.control.Host(0, recordSize)
	if f.leads {
		mine.put(p)
	}
	if err := f.group.Broadcast(ctx, v, f.opts.Leader); err != nil {
		return record{}, fmt.Errorf("receive the next bucket's record: %w", err)
	}
	f.mu.Lock()
	next := f.agreed + 1
	f.mu.Unlock()
	return parse(p, next)
}

// gather waits until this rank has the tensors of a bucket and they are packed. Tensors
// that it will never have are missing in the vote.
func (f *Fuser) gather(r record) (bucket, vote, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.added < r.last && f.err == nil && !f.closing {
		f.changed.Wait()
	}
	if f.err != nil {
		return bucket{}, vote{}, f.err
	}
	last := r.last
	if r.end || f.added < last {
		last = f.added
	}
	b := bucket{Bucket: Bucket{First: r.first, Last: r.last, Reason: r.reason}}
	var v vote
	for t := r.first; t <= last; t++ {
		size := f.items.at(int(t - f.done - 1)).Size()
		v.add(uint64(size))
		b.Bytes += size
		b.Padded = devices.Size(align(uint64(b.Padded))) + size
	}
	if r.end || last < r.last || v.count == 1 && f.alone(v.bytes) {
		if last == r.last {
			f.agreed = r.last
			f.packer.count = 0
		}
		return b, v, nil
	}
	if _, ok := f.place(0, uint64(b.Padded)); !ok {
		return b, v, nil // the ranks differ, and compare will report it
	}
	err := f.takeLocked(&b, int(v.count))
	return b, v, err
}

// takeLocked waits until a bucket is packed and takes its buffer.
//
// +checklocks:f.mu
func (f *Fuser) takeLocked(b *bucket, count int) error {
	p := &f.packer
	for p.open == nil || p.count < count {
		if f.err != nil {
			return f.err
		}
		f.changed.Wait()
	}
	b.buffer, p.open = p.open, nil
	f.agreed = b.Last
	f.changed.Broadcast()
	return nil
}

// compare compares the votes of all ranks for a bucket.
//
// Errors: a DifferentError, at every rank.
func (f *Fuser) compare(ctx context.Context, r record, mine vote) error {
	n := f.group.Size()
	all, err := view(f.control, recordSize, uint64(n*voteSize), elem.Uint8)
	if err != nil {
		return err
	}
	own, err := all.Slice(uint64(int(f.group.Rank())*voteSize), voteSize)
	if err != nil {
		return err
	}
	p := f.control.Host(recordSize, devices.Size(n*voteSize))
	mine.put(p[int(f.group.Rank())*voteSize:])
	if err := f.group.AllGather(ctx, all, own); err != nil {
		return fmt.Errorf("compare the next bucket: %w", err)
	}
	leader := readVote(p[int(f.opts.Leader)*voteSize:])
	for rank := range n {
		if v := readVote(p[rank*voteSize:]); v != leader {
			return &DifferentError{
				Rank: plan.Rank(rank), First: r.first,
				Count: v.count, Bytes: v.bytes, LeaderCount: leader.count, LeaderBytes: leader.bytes,
			}
		}
	}
	if want := uint64(r.last - r.first + 1); !r.end && leader.count != want {
		return fmt.Errorf("fusion: a bucket has %d tensors instead of %d: %w", leader.count, want, collective.ErrInconsistent)
	}
	return nil
}

func (f *Fuser) reduce(ctx context.Context, b bucket) error {
	var v domain.View
	if b.buffer == nil {
		v = f.item(b.First)
	} else {
		var err error
		if v, err = view(b.buffer, 0, uint64(b.Padded), f.opts.Type); err != nil {
			return err
		}
	}
	if v.Count() == 0 {
		return nil
	}
	if err := f.group.AllReduce(ctx, v, v, f.opts.Op); err != nil {
		return fmt.Errorf("reduce tensors %d to %d: %w", b.First, b.Last, err)
	}
	return nil
}
