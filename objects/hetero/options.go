package hetero

import (
	"fmt"
	"time"
)

// Existing selects what MSetD2H does with a key that already exists.
type Existing string

// The treatments of an existing key.
const (
	// ExistingSkip leaves the key unchanged and reports Result.Skipped. It is the only
	// behaviour of the seed system, and the default.
	ExistingSkip Existing = "skip"
	// ExistingReplace assigns the key to the new object atomically: a reader sees the old
	// bytes or the new ones, never a mix.
	ExistingReplace Existing = "replace"
	// ExistingFail makes the key fail with ErrExist.
	ExistingFail Existing = "fail"
)

// SetOptions are the options of MSetD2H.
type SetOptions struct {
	// Existing defaults to ExistingSkip.
	Existing Existing
	// TTL is the objects' time to live, in whole seconds; 0 means forever. The expiry is a
	// point in time, which a restart of the mount does not change.
	TTL time.Duration
}

// Validate reports faults, as ErrInvalid.
func (o SetOptions) Validate() error {
	switch o.Existing {
	case "", ExistingSkip, ExistingReplace, ExistingFail:
	default:
		return fmt.Errorf("%w: invalid rule for existing keys %q; use skip, replace or fail", ErrInvalid, string(o.Existing))
	}
	return CheckTTL(o.TTL)
}

// CheckTTL refuses an invalid time to live, as ErrInvalid.
func CheckTTL(ttl time.Duration) error {
	if ttl < 0 || ttl%time.Second != 0 {
		return fmt.Errorf("%w: invalid time to live %v; use whole seconds, or 0 for no limit", ErrInvalid, ttl)
	}
	return nil
}

// ClaimOptions are the options of DevClaim.
type ClaimOptions struct {
	// Timeout bounds the wait for a publication, and for another client that has reserved it;
	// 0 means no wait.
	Timeout time.Duration
	// Target is a registered Memory.Target that the bytes are written to; 0 means none. If the
	// client ends before DevSettle, the publication counts as received if the target has been
	// given its name, and is offered again otherwise.
	Target MemoryID
}

// GetOptions are the options of DevMGet and MGetH2D.
type GetOptions struct {
	// Timeout bounds the wait for keys that do not exist yet; 0 means no wait. Keys are
	// independent: a missing one delays no other.
	Timeout time.Duration
	// Replica makes the destination memory another source of the key, which is read when the
	// first one is gone. The caller must not change its bytes until DevLocalDelete. DevMGet
	// only, and only for whole reads.
	Replica bool
	// Into is memory for the results, of which the call returns a part if it has room for all; nil
	// allocates. A call in the background does not use it.
	Into Results
}

// Validate reports faults, as ErrInvalid.
func (o GetOptions) Validate() error { return CheckTimeout(o.Timeout) }

// SubscribeOptions are the options of DevSubscribe.
type SubscribeOptions struct {
	// Timeout bounds the wait for keys that are not published yet; 0 means OneKeyTimeout for
	// one key, and ManyKeysTimeout for several.
	Timeout time.Duration
}

// EnsureDefaults replaces zero values with the defaults for a call of n keys.
func (o *SubscribeOptions) EnsureDefaults(n int) {
	if o.Timeout != 0 {
		return
	}
	o.Timeout = OneKeyTimeout
	if n > 1 {
		o.Timeout = ManyKeysTimeout
	}
}

// Validate reports faults, as ErrInvalid.
func (o SubscribeOptions) Validate() error { return CheckTimeout(o.Timeout) }

// CheckTimeout refuses an invalid timeout, as ErrInvalid.
func CheckTimeout(d time.Duration) error {
	if d < 0 || d > MaxTimeout {
		return fmt.Errorf("%w: invalid timeout %v; use 0 to %v", ErrInvalid, d, MaxTimeout)
	}
	return nil
}
