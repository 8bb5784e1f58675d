package fusion

import (
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

// What callers tell apart, beside the group's errors.
var (
	// ErrArgument is a tensor or an option that can't be.
	ErrArgument = errors.New("fusion: argument not usable")
	// ErrClosed is a fuser that is closed.
	ErrClosed = errors.New("fusion: closed")
)

// Group has what a fuser needs of a collective.Group. It is the fuser's alone
// until Close, since its calls have to come in one order.
type Group interface {
	Rank() plan.Rank
	Size() int
	Share(ctx context.Context, b *region.Buffer) (mapped bool, err error)
	Unshare(b *region.Buffer) error
	AllReduce(ctx context.Context, result, source domain.View, op elem.Op) error
	AllGather(ctx context.Context, result, source domain.View) error
	Broadcast(ctx context.Context, v domain.View, root plan.Rank) error
}

// Options describe a fuser. Every rank has to have the same, but
// for Observe.
type Options struct {
	// Type is that of all tensors, and Op how they are combined.
	Type elem.Type
	Op   elem.Op
	// Bytes is the size at which a bucket is due, without what lies between its tensors.
	// Default 32 MiB.
	Bytes devices.Size
	// Capacity is the memory of one buffer, for whose sake a bucket may end
	// before it is due. Default Bytes and a half.
	Capacity devices.Size
	// Window is the time that the first tensor of a bucket waits for others. Default
	// 5 ms; negative is for ever.
	Window time.Duration
	// Buffers is the number of buckets that are under way at a time. Default 2, and never
	// fewer.
	Buffers int
	// Ends are the last tensors of the buckets, counted from 0 in each step, of
	// which the last one ends the step: ByIndex, ByPercent. Nil is none. Bytes
	// and Window don't cut then.
	Ends []int
	// Leader is the rank that cuts.
	Leader plan.Rank
	// Observe gets each bucket when it has been reduced, from a goroutine of the
	// fuser.
	Observe func(Bucket)
}

// Bucket is some tensors that were reduced together.
type Bucket struct {
	// First and Last are the tickets of its tensors.
	First Ticket
	Last  Ticket
	// Bytes are those of the tensors, and Padded with what lies between them.
	Bytes  devices.Size
	Padded devices.Size
	// Reason is why it ends where it does.
	Reason Reason
}

// EnsureDefaults fills in what is not set.
func (o *Options) EnsureDefaults() {
	if o.Op == 0 {
		o.Op = elem.Sum
	}
	if o.Bytes == 0 {
		o.Bytes = 32 << 20
	}
	if o.Capacity == 0 {
		o.Capacity = o.Bytes + o.Bytes/2
	}
	if o.Window == 0 {
		o.Window = 5 * time.Millisecond
	}
	o.Buffers = max(o.Buffers, 2)
}

// Validate reports every option that can't be.
func (o *Options) Validate(size int) error {
	var faults []error
	bad := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, ErrArgument)...))
	}
	if !o.Type.Combines() {
		bad("tensors of %s", o.Type)
	}
	if !o.Op.Known() {
		bad("%s", o.Op)
	}
	if o.Capacity < o.Bytes {
		bad("buffers of %v for buckets of %v", o.Capacity, o.Bytes)
	}
	if o.Leader < 0 || int(o.Leader) >= size {
		bad("leader %d of %d ranks", o.Leader, size)
	}
	if len(o.Ends) > 0 {
		if _, err := ByIndex(o.Ends); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}
