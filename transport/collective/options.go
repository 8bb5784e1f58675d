package collective

import (
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Check says when arguments are compared between the ranks.
type Check string

// The checks.
const (
	// CheckOff trusts that all ranks ask for the same.
	CheckOff Check = "off"
	// CheckFirst compares the first call of each shape.
	CheckFirst Check = "first"
	// CheckAll compares every call.
	CheckAll Check = "on"
)

// Options describe a group. Every rank has to have the same, but
// for Logger, Observe and those of staging: New compares them.
type Options struct {
	// Algorithm is used for every call that it can do. Empty is the fastest by
	// the cost model.
	Algorithm plan.Algorithm
	// Algorithms is used instead for calls of these kinds; an empty one is the
	// fastest.
	Algorithms map[plan.Kind]plan.Algorithm
	// Strict combines in the order of the ranks: see package plan.
	Strict bool
	// Check says when arguments are compared. Default CheckFirst.
	Check Check
	// Costs are those of the links. Nil measures them, which takes some
	// milliseconds.
	Costs *plan.Costs
	// Order and Topology are those of plan.Shape: package topology makes them.
	Order    []plan.Rank
	Topology string
	// Buffer bounds the memory that a group keeps from call to call for what its plans
	// put aside. A call that needs more takes it from the system, and gives it
	// back. Default 64 MiB, of which only what is needed is taken.
	Buffer devices.Size
	// StageSlot and StageSlots are the size and the number of the pinned slots
	// through which memory goes that the host does not see. They bound what a call
	// takes for that, whatever its size; what was taken is kept until Close. A
	// slot is the size that is copied at once, where there are slots enough for all ranks.
	// They may be others at each rank. A power of two from 64 KiB to 1 GiB, and 4
	// to 1024, together at least 1 MiB. Default 8 of 1 MiB.
	StageSlot  devices.Size
	StageSlots int
	// Timeout bounds the wait of a rank for another one before the call fails and
	// names it. Who sends less than 64 KiB in that time, and does not end a step
	// of the plan, is waited for no longer either. Default 30 minutes.
	Timeout time.Duration
	// Stuck is after how long a wait is reported: the rank, its peers, in which
	// call and step. Default 10 s.
	Stuck time.Duration
	// Retry is the number of times that a call is done again after a link was lost. A call in
	// place is only done again with KeepSource. Default 1; negative is never.
	Retry int
	// KeepSource keeps a copy of what a call in place overwrites: on the device
	// where the host does not see it, and on the host where that has no room.
	KeepSource bool
	// Settle is from how many bytes of a source or result on a call that goes over
	// links ends when all ranks have theirs. Only then a rank that has lost a link
	// finds all others where they can still do the call again: of a call of fewer
	// bytes one may be ahead, or gone, and the others get ErrRetry. It costs about
	// a Barrier. 1 is each call. Default 4 MiB.
	Settle devices.Size
	// Observe gets the report of each call, in the caller's goroutine.
	Observe func(*Report)
	// Logger gets the messages about degraded calls. Nil is none.
	Logger *zap.Logger
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	if o.Check == "" {
		o.Check = CheckFirst
	}
	if o.Buffer == 0 {
		o.Buffer = 64 * devices.MiB
	}
	if o.StageSlot == 0 {
		o.StageSlot = devices.MiB
	}
	if o.StageSlots == 0 {
		o.StageSlots = 8
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Minute
	}
	if o.Stuck == 0 {
		o.Stuck = 10 * time.Second
	}
	if o.Retry == 0 {
		o.Retry = 1
	}
	if o.Settle == 0 {
		o.Settle = 4 * devices.MiB
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// check refuses what does not exist. Errors: ErrArgument.
func (o *Options) check() error {
	asked := []plan.Algorithm{o.Algorithm}
	for kind, a := range o.Algorithms {
		if !kind.Known() {
			return fmt.Errorf("%w: an algorithm for %v", ErrArgument, kind)
		}
		asked = append(asked, a)
	}
	for _, a := range asked {
		if a != "" && !slices.Contains(plan.Algorithms(), a) {
			return fmt.Errorf("%w: there is no algorithm %.40q", ErrArgument, a)
		}
	}
	if o.Check != CheckOff && o.Check != CheckFirst && o.Check != CheckAll {
		return fmt.Errorf("%w: there is no check %.40q", ErrArgument, o.Check)
	}
	return o.checkStage()
}

// The bounds of staging. smallestStage is what 64 ranks need for as many pages as
// their steps can be at.
const (
	minStageSlot  = 64 * devices.KiB
	maxStageSlot  = devices.GiB
	minStageSlots = 4
	maxStageSlots = 1024
	smallestStage = devices.MiB
)

// checkStage refuses slots that can't be, or are too few.
func (o *Options) checkStage() error {
	n := o.StageSlot
	if n < minStageSlot || n > maxStageSlot || n&(n-1) != 0 {
		return fmt.Errorf("%w: staging slots of %d bytes, not a power of two from %v to %v",
			ErrArgument, uint64(n), minStageSlot, maxStageSlot)
	}
	if o.StageSlots < minStageSlots || o.StageSlots > maxStageSlots {
		return fmt.Errorf("%w: %d staging slots, not %d to %d", ErrArgument, o.StageSlots, minStageSlots, maxStageSlots)
	}
	if all := n * devices.Size(o.StageSlots); all < smallestStage {
		return fmt.Errorf("%w: %v of staging slots, not at least %v", ErrArgument, all, smallestStage)
	}
	return nil
}
