package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// The defaults of Options.
const (
	DefaultChannels    = 4
	DefaultAttrTTL     = time.Second
	DefaultTimeout     = 10 * time.Second
	DefaultDialTimeout = 3 * time.Second
	// Nobody is the user that other users are squashed to.
	Nobody uint32 = 65534
)

// EnsureDefaults replaces zero values with the defaults.
func (o *Options) EnsureDefaults() {
	o.Channels = cmp.Or(o.Channels, DefaultChannels)
	o.Squash.Mode = cmp.Or(o.Squash.Mode, SquashRoot)
	o.Squash.UID = cmp.Or(o.Squash.UID, Nobody)
	o.Squash.GID = cmp.Or(o.Squash.GID, Nobody)
	o.AttrTTL = cmp.Or(o.AttrTTL, DefaultAttrTTL)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.DialTimeout = cmp.Or(o.DialTimeout, DefaultDialTimeout)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
}

// Validate reports every fault of the options at once, joined.
func (o *Options) Validate() error {
	var faults []error
	if o.View == nil {
		faults = append(faults, errors.New("cluster: no view of the nodes given"))
	} else if err := o.View.Self().Name.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("cluster: %w", err))
	}
	if o.Store == nil {
		faults = append(faults, errors.New("cluster: no store given"))
	}
	if o.Engine == nil {
		faults = append(faults, errors.New("cluster: no engine given"))
	}
	if len(o.Secret) == 0 && o.TLS == nil {
		faults = append(faults, errors.New("cluster: no secret and no certificate given"))
	}
	switch o.Squash.Mode {
	case "", SquashRoot, SquashAll, SquashNone:
	default:
		faults = append(faults, fmt.Errorf("cluster: invalid squash %q: use root, all or none", o.Squash.Mode))
	}
	for name, d := range map[string]time.Duration{
		"attribute time": o.AttrTTL, "time limit": o.Timeout, "time limit of connecting": o.DialTimeout,
	} {
		if d < 0 {
			faults = append(faults, fmt.Errorf("cluster: negative %s", name))
		}
	}
	return errors.Join(faults...)
}
