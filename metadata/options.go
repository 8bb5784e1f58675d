package metadata

import (
	"cmp"
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
	// KeepNameless makes inodes that lose their last name while their attributes are held
	// outlive the process: see Nameless.
	KeepNameless bool
}

// EnsureDefaults fills in the fields that were left out.
func (o *Options) EnsureDefaults() {
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Limits.EnsureDefaults()
}
