package members

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// DefaultTTL is the time that a node that answers no more stays in the view.
const DefaultTTL = 10 * time.Second

// Options are those of Join.
type Options struct {
	// Service keeps the records. Required, borrowed: Leave before
	// it is closed.
	Service coord.Service
	// Self is our own record. The name is required. ID should be random and
	// kept in the node's state directory: a node that was killed and joins
	// again replaces its own record at once, and waits for nothing. Epoch is
	// that of the node's last time, from there as well, 0 if that is not
	// known; Join makes the next one.
	Self Record
	// TTL is the lease: how long after a node's death it is still seen. Whole
	// seconds, from 1 s to 1 h. Default DefaultTTL.
	TTL time.Duration
	// Probe is the interval at which is looked whether the service answers and still has
	// our record. From 1 ms to TTL. Default TTL/3.
	Probe time.Duration
	// Backend and Endpoints are for State. Backend defaults to "etcd".
	Backend   string
	Endpoints []string
	// Logger gets life-cycle messages; nil is silent.
	Logger *zap.Logger
}

// EnsureDefaults fills in what is left at its zero value.
func (o *Options) EnsureDefaults() {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.Probe == 0 {
		o.Probe = o.TTL / 3
	}
	if o.Backend == "" {
		o.Backend = "etcd"
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Self.Started.IsZero() {
		o.Self.Started = time.Now()
	}
}

// Validate reports every fault of the options at once, joined.
func (o *Options) Validate() error {
	faults := []error{o.Self.Validate()}
	if o.Service == nil {
		faults = append(faults, errors.New("members: no service"))
	}
	if o.TTL < time.Second || o.TTL > time.Hour || o.TTL%time.Second != 0 {
		faults = append(faults, fmt.Errorf("members: a lease of %v; use whole seconds, from 1s to 1h", o.TTL))
	}
	if o.Probe < time.Millisecond || o.Probe > o.TTL {
		faults = append(faults, fmt.Errorf("members: a probe each %v; use 1ms to the lease's %v", o.Probe, o.TTL))
	}
	return errors.Join(faults...)
}
