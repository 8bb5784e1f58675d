package tcp

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/internal/pages"
	"github.com/hmcfs/hmcfs/transport/region"
)

// The defaults and bounds of Options.
const (
	DefaultInFlight = 32
	DefaultTimeout  = 30 * time.Second
	// MaxInFlight bounds the unanswered requests of a peer; one that has more
	// does not run this library, and is dropped.
	MaxInFlight = 256
)

// Options configures a channel.
type Options struct {
	// Keys are those that the peer may use. Required.
	Keys *region.Keys
	// Engine provides pinned slots for device memory. Required.
	Engine *transport.Engine
	// Pipes carry the pages of files, shared by channels. Required.
	Pipes *pages.Pool
	// InFlight is the number of fragments that may await their answer, from 1 to
	// 256. Default 32.
	InFlight int
	// Timeout is the time without progress while something is pending after which
	// the channel ends. Default 30 s.
	Timeout time.Duration
}

// EnsureDefaults fills in the fields left at their zero value.
func (o *Options) EnsureDefaults() {
	o.InFlight = cmp.Or(o.InFlight, DefaultInFlight)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
}

// Validate reports every fault of the options at once, joined.
func (o *Options) Validate() error {
	var faults []error
	if o.Keys == nil || o.Engine == nil || o.Pipes == nil {
		faults = append(faults, errors.New("tcp: keys, an engine and pipes must be given"))
	}
	if o.InFlight < 1 || o.InFlight > MaxInFlight {
		faults = append(faults, fmt.Errorf("tcp: %d fragments in flight; use 1 to %d", o.InFlight, MaxInFlight))
	}
	if o.Timeout < 0 {
		faults = append(faults, fmt.Errorf("tcp: timeout %v must not be negative", o.Timeout))
	}
	return errors.Join(faults...)
}
