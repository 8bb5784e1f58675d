package keyindex

import (
	"cmp"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/members"
)

// Options configure a Registry.
type Options struct {
	// Service keeps the index. Required; not closed by the Registry.
	Service coord.Service
	// Self is the name of this node. Required.
	Self members.Name
	// Lease returns the lease that keys are bound to at present, nil if there is none, the
	// node's epoch, and a channel that is closed when either changes. Required; usually
	// members.Members.Lease.
	Lease func() (l coord.Lease, epoch members.Epoch, changed <-chan struct{})
	// Remember is the time for which Find remembers a key's place. Default 5 s.
	Remember time.Duration
	// Retry is the delay before an unavailable service is asked again. Default 1 s.
	Retry time.Duration
	// Look is the interval at which the registry checks whether its keys are still in the
	// service, and whether contested ones have become free. Default 15 s.
	Look time.Duration
	// Logger receives messages for the administrator; nil disables logging.
	Logger *zap.Logger
}

// EnsureDefaults fills in the fields that have no valid value.
func (o *Options) EnsureDefaults() {
	if o.Remember <= 0 {
		o.Remember = 5 * time.Second
	}
	if o.Retry <= 0 {
		o.Retry = time.Second
	}
	if o.Look <= 0 {
		o.Look = 15 * time.Second
	}
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
}

// Validate reports every fault of the options, joined.
func (o *Options) Validate() error {
	var faults []error
	if o.Service == nil {
		faults = append(faults, errors.New("keyindex: no service given"))
	}
	if o.Lease == nil {
		faults = append(faults, errors.New("keyindex: no lease given"))
	}
	return errors.Join(append(faults, o.Self.Validate())...)
}
