package domain

import (
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

// Options are those of the domains of a communicator.
type Options struct {
	// Book says where ranks listen. Of two ranks the higher one connects to
	// the lower one, so each needs the addresses of those below it, but for
	// those that are connected already.
	Book map[wire.Rank]control.Address
	// Eager is the most bytes of a host buffer that are sent before the
	// receiver has asked for them, up to half of the receiver's Window.
	// Default 64 KiB.
	Eager devices.Size
	// NoEager makes every send wait for its receive.
	NoEager bool
	// Window is the most bytes of one peer in one domain that lie here without
	// having been received, from 1 MiB to 1 GiB. Default 8 MiB.
	Window devices.Size
	// Timeout bounds the wait of an operation whose context has no deadline.
	// Default 30 minutes.
	Timeout time.Duration
	// Grace bounds the wait of a send whose time is over for the receiver to
	// say that it will not use the bytes. Default 1 s.
	Grace time.Duration
	// Logger gets a line for the begin and the end of each domain. Nil is
	// none.
	Logger *zap.Logger
}

// EnsureDefaults fills in what is left at its zero value.
func (o *Options) EnsureDefaults() {
	if o.Eager == 0 {
		o.Eager = DefaultEager
	}
	if o.Window == 0 {
		o.Window = DefaultWindow
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Grace == 0 {
		o.Grace = time.Second
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
}

// Validate reports every fault of the options at once, joined.
func (o *Options) Validate() error {
	var faults []error
	if o.Window < MinWindow || o.Window > MaxWindow {
		faults = append(faults, fmt.Errorf("domain: a window of %d bytes; use %d to %d", uint64(o.Window), MinWindow, MaxWindow))
	}
	if o.Timeout < 0 || o.Grace < 0 {
		faults = append(faults, fmt.Errorf("domain: timeout %v and grace %v must not be negative", o.Timeout, o.Grace))
	}
	return errors.Join(faults...)
}

// eager says how many bytes go without being asked for.
func (o *Options) eager() devices.Size {
	if o.NoEager {
		return 0
	}
	return o.Eager
}
