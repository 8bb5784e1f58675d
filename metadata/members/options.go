package members

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/coord"
)

// DefaultTTL is the default time that a node that stopped answering stays in the view.
const DefaultTTL = 10 * time.Second

// Options configure Join.
type Options struct {
	// Service keeps the records. Required; not closed by Members, which must be closed
	// first.
	Service coord.Service
	// Self is this node's record. The name is required. ID should be random and kept in the
	// node's state directory: a node that was killed and joins again then replaces its own
	// record at once, without waiting. Epoch is that of the node's previous incarnation,
	// from the same directory, or 0 if it is not known; Join chooses the next, unless Life says
	// that the incarnation continues.
	Self Record
	// TTL is the duration of the lease: how long a node is still seen after its death.
	// Whole seconds, from 1 s to 1 h. Default DefaultTTL.
	TTL time.Duration
	// Probe is the interval at which the node checks that the service answers and still has
	// its record. From 1 ms to TTL. Default TTL/3.
	Probe time.Duration
	// Backend and Endpoints are reported by State. Backend defaults to "etcd".
	Backend   string
	Endpoints []string
	// Logger receives life-cycle messages; nil disables logging.
	Logger *zap.Logger
}

// EnsureDefaults fills in the fields that have their zero value.
func (o *Options) EnsureDefaults() {
	o.TTL = cmp.Or(o.TTL, DefaultTTL)
	o.Probe = cmp.Or(o.Probe, o.TTL/3)
	o.Backend = cmp.Or(o.Backend, "etcd")
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	if o.Self.Started.IsZero() {
		o.Self.Started = time.Now()
	}
}

// Validate reports every fault of the options, joined.
func (o *Options) Validate() error {
	faults := []error{o.Self.Validate()}
	if o.Service == nil {
		faults = append(faults, errors.New("members: no service given"))
	}
	if o.TTL < time.Second || o.TTL > time.Hour || o.TTL%time.Second != 0 {
		faults = append(faults, fmt.Errorf("members: invalid lease %v; use whole seconds, from 1s to 1h", o.TTL))
	}
	if o.Probe < time.Millisecond || o.Probe > o.TTL {
		faults = append(faults, fmt.Errorf("members: invalid probe interval %v; use 1ms to the lease's %v", o.Probe, o.TTL))
	}
	return errors.Join(faults...)
}
