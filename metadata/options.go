package metadata

import (
	"time"

	"go.uber.org/zap"
)

// Options configure a Store.
type Options struct {
	// Logger receives messages for the administrator; nil disables logging.
	Logger *zap.Logger
	// Now returns the time for the timestamps of inodes; nil means time.Now. It is called
	// concurrently.
	Now func() time.Time
	// Limits are the limits per inode and per user.
	Limits Limits
}

// EnsureDefaults fills in the fields that were left out.
func (o *Options) EnsureDefaults() {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Limits.EnsureDefaults()
}

// Validate reports faults of the options. At present there are none to find; it exists so
// that callers need not know that.
func (o *Options) Validate() error { return nil }
