package keyindex

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/members"
)

// Options describe a Registry.
type Options struct {
	// Service keeps the index. Required, borrowed.
	Service coord.Service
	// Self is this node. Required.
	Self members.Name
	// Lease returns what keys are bound to at present, nil where there is nothing,
	// the node's incarnation, and what is closed when the answer is another one.
	// Required; members.Members.Lease.
	Lease func() (l coord.Lease, epoch members.Epoch, changed <-chan struct{})
	// Remember is the time that Find remembers a key's place. Default 5 s.
	Remember time.Duration
	// Retry is after how long the service is asked again that could not be.
	// Default 1 s.
	Retry time.Duration
	// Look is the interval at which the registry looks whether its keys are still in the
	// service, and whether contested ones have become free. Default 15 s.
	Look time.Duration
	// Logger gets a line for what people should know; nil is silent.
	Logger *zap.Logger
}

// EnsureDefaults fills in what was left out.
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
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
}

// Validate reports every fault at once.
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
