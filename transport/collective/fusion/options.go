package fusion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// Errors that callers distinguish, in addition to those of the group.
var (
	// ErrArgument reports an invalid tensor or option.
	ErrArgument = errors.New("fusion: invalid argument")
	// ErrClosed reports that the fuser is closed.
	ErrClosed = errors.New("fusion: closed")
)

// Group is the part of a collective.Group that a fuser needs. It has no other user until
// Close, since its calls must come in one order.
type Group interface {
	Rank() plan.Rank
	Size() int
	Share(ctx context.Context, b *region.Buffer) (mapped bool, err error)
	Unshare(b *region.Buffer) error
	AllReduce(ctx context.Context, result, source domain.View, op elem.Op) error
	AllGather(ctx context.Context, result, source domain.View) error
	Broadcast(ctx context.Context, v domain.View, root plan.Rank) error
}

// Options configures a fuser. Every rank must use the same options, except for Observe.
type Options struct {
	// Type is the type of all tensors, and Op the operation that combines them.
	Type elem.Type
	Op   elem.Op
	// Bytes is the size at which a bucket ends, without padding between its tensors.
	// Default 32 MiB.
	Bytes devices.Size
	// Capacity is the size of one buffer; a bucket may end earlier for lack of room.
	// Default 1.5 times Bytes.
	Capacity devices.Size
	// Window is the time that the first tensor of a bucket waits for others. Default 5 ms;
	// negative means no limit.
	Window time.Duration
	// Buffers is the number of buckets in progress at a time. Default and minimum 2.
	Buffers int
	// Ends lists the last tensor of each bucket, counted from 0 in each step; the last one
	// ends the step: see ByIndex and ByPercent. Nil means none. If set, Bytes and Window do
	// not cut.
	Ends []int
	// Leader is the rank that decides on the cuts.
	Leader plan.Rank
	// Observe, if set, is called with each bucket that has been reduced, in a goroutine of
	// the fuser.
	Observe func(Bucket)
}

// Bucket describes tensors that were reduced together.
type Bucket struct {
	// First and Last are the tickets of its tensors.
	First Ticket
	Last  Ticket
	// Bytes is the size of the tensors, and Padded the size including padding between them.
	Bytes  devices.Size
	Padded devices.Size
	// Reason is the reason why it ends there.
	Reason Reason
}

// EnsureDefaults sets unset options to their defaults.
func (o *Options) EnsureDefaults() {
	o.Op = cmp.Or(o.Op, elem.Sum)
	o.Bytes = cmp.Or(o.Bytes, 32<<20)
	o.Capacity = cmp.Or(o.Capacity, o.Bytes+o.Bytes/2)
	o.Window = cmp.Or(o.Window, 5*time.Millisecond)
	o.Buffers = max(o.Buffers, 2)
}

// Validate reports every invalid option, for a group of the given size.
func (o *Options) Validate(size int) error {
	var faults []error
	bad := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, ErrArgument)...))
	}
	if !o.Type.Combines() {
		bad("tensors of type %s can't be combined", o.Type)
	}
	if !o.Op.Known() {
		bad("%s", o.Op)
	}
	if o.Capacity < o.Bytes {
		bad("buffers of %v are smaller than buckets of %v", o.Capacity, o.Bytes)
	}
	if o.Leader < 0 || int(o.Leader) >= size {
		bad("leader %d is not one of the %d ranks", o.Leader, size)
	}
	if len(o.Ends) > 0 {
		if _, err := ByIndex(o.Ends); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}
