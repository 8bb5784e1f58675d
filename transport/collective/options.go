package collective

import (
	"cmp"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Check selects when arguments are compared between the ranks.
type Check string

// The checks.
const (
	// CheckOff assumes that all ranks make the same calls.
	CheckOff Check = "off"
	// CheckFirst compares the first call with given arguments.
	CheckFirst Check = "first"
	// CheckAll compares every call.
	CheckAll Check = "on"
)

// Options configures a group. Every rank must use the same options, except for Logger,
// Observe and those of staging; New compares them, except for Costs.
type Options struct {
	// Algorithm is used for every call that it can do. If empty, the cost model chooses the
	// fastest.
	Algorithm plan.Algorithm
	// Algorithms overrides Algorithm for calls of these kinds; an empty value means the
	// fastest.
	Algorithms map[plan.Kind]plan.Algorithm
	// Strict combines in the order of the ranks: see package plan.
	Strict bool
	// Check selects when arguments are compared. Default CheckFirst.
	Check Check
	// Costs are the costs of links and memory, the same at all ranks. Nil measures them,
	// which takes some milliseconds.
	Costs *plan.Costs
	// Order and Topology are those of plan.Shape, as computed by package topology.
	Order    []plan.Rank
	Topology string
	// Buffer bounds the scratch memory of plans that a group keeps from call to call. A
	// call that needs more allocates it, and frees it afterwards. Default 64 MiB; only what
	// is needed is allocated.
	Buffer devices.Size
	// StageSlot and StageSlots are the size and the number of the pinned slots for staging
	// memory that the host can't access. They bound the memory that calls use for it,
	// whatever their size; slots are kept until Close. A whole slot is copied at a time if
	// there are enough slots for all ranks. The values may differ between ranks. StageSlot
	// is a power of two from 64 KiB to 1 GiB, StageSlots is 4 to 1024, and together they
	// are at least 1 MiB. Default 8 slots of 1 MiB.
	StageSlot  devices.Size
	StageSlots int
	// Timeout bounds the wait of a rank for another one, before the call fails and names
	// it. A rank that sends less than 64 KiB in that time, without completing a step of the
	// plan, also times out. Default 30 minutes.
	Timeout time.Duration
	// Stuck is the time after which a wait is logged, with the rank, its peers, the call
	// and the step. Default 10 s.
	Stuck time.Duration
	// Retry is the number of times that a call is repeated after a link was lost. A call in
	// place is repeated only with KeepSource. Default 1; negative means never.
	Retry int
	// KeepSource keeps a copy of the source that a call in place overwrites: on the device
	// if the host can't access the source there, or on the host if the device has no room.
	KeepSource bool
	// Settle is the size, in bytes of the whole, from which on a call over links ends only
	// when all ranks have their results. Only then does a rank that has lost a link find
	// all others still able to repeat the call: after a smaller call a rank may have moved
	// on or ended, and the others get ErrRetry. It costs about a Barrier. 1 means every
	// call. Default 4 MiB.
	Settle devices.Size
	// Observe, if set, is called with the report of each successful call, in the caller's
	// goroutine.
	Observe func(*Report)
	// Logger receives messages about degraded calls. Nil disables them.
	Logger *zap.Logger
}

func (o Options) withDefaults() Options {
	o.Check = cmp.Or(o.Check, CheckFirst)
	o.Buffer = cmp.Or(o.Buffer, 64*devices.MiB)
	o.StageSlot = cmp.Or(o.StageSlot, devices.MiB)
	o.StageSlots = cmp.Or(o.StageSlots, 8)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Minute)
	o.Stuck = cmp.Or(o.Stuck, 10*time.Second)
	o.Retry = cmp.Or(o.Retry, 1)
	o.Settle = cmp.Or(o.Settle, 4*devices.MiB)
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	return o
}

// check rejects invalid values. Errors: ErrArgument.
func (o *Options) check() error {
	asked := []plan.Algorithm{o.Algorithm}
	for kind, a := range o.Algorithms {
		if !kind.Known() {
			return fmt.Errorf("%w: algorithm for unknown %v", ErrArgument, kind)
		}
		asked = append(asked, a)
	}
	for _, a := range asked {
		if a != "" && !a.Known() {
			return fmt.Errorf("%w: unknown algorithm %.40q", ErrArgument, a)
		}
	}
	if o.Check != CheckOff && o.Check != CheckFirst && o.Check != CheckAll {
		return fmt.Errorf("%w: unknown check %.40q", ErrArgument, o.Check)
	}
	return o.checkStage()
}

// The bounds of staging. smallestStage suffices for 64 ranks with as many pages as their
// steps can use at once.
const (
	minStageSlot  = 64 * devices.KiB
	maxStageSlot  = devices.GiB
	minStageSlots = 4
	maxStageSlots = 1024
	smallestStage = devices.MiB
)

// checkStage rejects invalid slots, and too few of them.
func (o *Options) checkStage() error {
	n := o.StageSlot
	if n < minStageSlot || n > maxStageSlot || n&(n-1) != 0 {
		return fmt.Errorf("%w: staging slot size of %d bytes must be a power of two from %v to %v",
			ErrArgument, uint64(n), minStageSlot, maxStageSlot)
	}
	if o.StageSlots < minStageSlots || o.StageSlots > maxStageSlots {
		return fmt.Errorf("%w: %d staging slots; use %d to %d", ErrArgument, o.StageSlots, minStageSlots, maxStageSlots)
	}
	if all := n * devices.Size(o.StageSlots); all < smallestStage {
		return fmt.Errorf("%w: staging slots of %v in total; use at least %v", ErrArgument, all, smallestStage)
	}
	return nil
}
