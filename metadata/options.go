package metadata

import (
	"time"

	"go.uber.org/zap"
)

// Options are those of a Store.
type Options struct {
	// Logger receives what a person should know; nil means nothing is logged.
	Logger *zap.Logger
	// Now tells the time for the timestamps of inodes; nil means time.Now. It
	// is called by many goroutines at once.
	Now func() time.Time
	// Limits bound what one inode and one user have.
	Limits Limits
}

// EnsureDefaults fills in what was left out.
func (o *Options) EnsureDefaults() {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Limits.EnsureDefaults()
}

// Validate reports what is wrong with the options. There is nothing that can
// be wrong at present; it exists so that callers need not know.
func (o *Options) Validate() error { return nil }
