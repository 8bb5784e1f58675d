package domain

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// The defaults and bounds of Options.
const (
	DefaultEager   = 64 << 10
	DefaultWindow  = 8 << 20
	DefaultTimeout = 30 * time.Minute
	MinWindow      = 1 << 20
	MaxWindow      = 1 << 30
)

// Options configures the domains of a communicator.
type Options struct {
	// AddressBook holds the addresses of the ranks. The higher of two ranks connects to the lower
	// one, so each rank needs the addresses of those below it, except for ranks that are
	// connected already.
	AddressBook map[wire.Rank]control.Address
	// Eager is the most bytes of a host buffer that are sent without a request from the
	// receiver. Default 64 KiB. A message that does not fit into the free part of the
	// receiver's Window, less an eighth of the window, is not sent eagerly.
	Eager devices.Size
	// NoEager makes every send wait for its receive.
	NoEager bool
	// Window bounds the memory used here by messages of one peer in one domain that have
	// not been received, from 1 MiB to 1 GiB. Default 8 MiB.
	Window devices.Size
	// Timeout bounds the wait of an operation whose context has no deadline. Default 30
	// minutes.
	Timeout time.Duration
	// Grace bounds the wait of a send that has timed out for the receiver's confirmation
	// that it will not use the bytes. Default 1 s.
	Grace time.Duration
	// Logger receives a message when a domain is made and when it is destroyed. Nil
	// disables them.
	Logger *zap.Logger
}

// EnsureDefaults sets zero options to their defaults.
func (o *Options) EnsureDefaults() {
	o.Eager = cmp.Or(o.Eager, DefaultEager)
	o.Window = cmp.Or(o.Window, DefaultWindow)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Grace = cmp.Or(o.Grace, time.Second)
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
}

// Validate reports all invalid options, joined.
func (o *Options) Validate() error {
	var faults []error
	if o.Window < MinWindow || o.Window > MaxWindow {
		faults = append(faults, fmt.Errorf("domain: a window of %d bytes; use %d to %d", uint64(o.Window), MinWindow, MaxWindow))
	}
	if o.Timeout < 0 || o.Grace < 0 {
		faults = append(faults, fmt.Errorf("domain: timeout %v and grace period %v must not be negative", o.Timeout, o.Grace))
	}
	return errors.Join(faults...)
}

// eager returns the number of bytes that may be sent without a request.
func (o *Options) eager() devices.Size {
	if o.NoEager {
		return 0
	}
	return o.Eager
}
