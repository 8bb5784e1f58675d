package collective

import (
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// Check is when arguments are compared between the ranks.
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

// Options is what a group is made with. Every rank has to have the same, but
// for Logger and Observe: New compares them.
type Options struct {
	// Algorithm is used for every call that it can do. Empty is the fastest by
	// the cost model.
	Algorithm plan.Algorithm
	// Algorithms is used instead for calls of these kinds; an empty one is the
	// fastest.
	Algorithms map[plan.Kind]plan.Algorithm
	// Strict combines in the order of the ranks: see package plan.
	Strict bool
	// Check is when arguments are compared. Default CheckFirst.
	Check Check
	// Costs are what the links cost. Nil measures them, which takes some
	// milliseconds.
	Costs *plan.Costs
	// Order and Topology are those of plan.Shape: package topology makes them.
	Order    []plan.Rank
	Topology string
	// Buffer is how much memory a group keeps from call to call for each of
	// scratch, staged sources and staged results. A call that needs more takes it
	// from the system, and gives it back. Default 64 MiB, of which only what is
	// needed is taken.
	Buffer devices.Size
	// Timeout is how long a rank waits for another one before the call fails and
	// names it. Default 30 minutes.
	Timeout time.Duration
	// Stuck is after how long a wait is reported: who waits, for whom, in which
	// call and step. Default 10 s.
	Stuck time.Duration
	// Retry is how often a call is done again after a link was lost. A call in
	// place is only done again with KeepSource. Default 1; negative is never.
	Retry int
	// KeepSource keeps a copy of what a call in place overwrites.
	KeepSource bool
	// Observe gets the report of each call, in the caller's goroutine.
	Observe func(*Report)
	// Logger is where degraded calls are told. Nil is none.
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
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Minute
	}
	if o.Stuck == 0 {
		o.Stuck = 10 * time.Second
	}
	if o.Retry == 0 {
		o.Retry = 1
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
	return nil
}
