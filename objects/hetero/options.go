package hetero

import (
	"fmt"
	"time"
)

// Existing says what MSetD2H does with a key that is there already.
type Existing string

// The ways with a key that exists.
const (
	// ExistingSkip leaves it as it is and says so: Result.Skipped. It is the
	// seed system's only way, and the default.
	ExistingSkip Existing = "skip"
	// ExistingReplace gives the key to the new object in one step: a reader
	// sees the old bytes or the new ones, never a mix.
	ExistingReplace Existing = "replace"
	// ExistingFail makes the key fail with ErrExist.
	ExistingFail Existing = "fail"
)

// SetOptions are those of MSetD2H.
type SetOptions struct {
	// Existing is ExistingSkip where it is empty.
	Existing Existing
	// TTL is the objects' time to live, in whole seconds; 0 is for ever. The
	// end is a point in time, which a restart of the mount does not move.
	TTL time.Duration
}

// Validate reports what is wrong, as ErrInvalid.
func (o SetOptions) Validate() error {
	switch o.Existing {
	case "", ExistingSkip, ExistingReplace, ExistingFail:
	default:
		return fmt.Errorf("%w: existing keys: %q is none of skip, replace, fail", ErrInvalid, string(o.Existing))
	}
	return CheckTTL(o.TTL)
}

// CheckTTL refuses, as ErrInvalid, what is no time to live.
func CheckTTL(ttl time.Duration) error {
	if ttl < 0 || ttl%time.Second != 0 {
		return fmt.Errorf("%w: a time to live of %v: whole seconds, 0 for ever", ErrInvalid, ttl)
	}
	return nil
}

// ClaimOptions are those of DevClaim.
type ClaimOptions struct {
	// Timeout bounds the wait for a publication, and for another client that has
	// reserved it; with 0 there is none.
	Timeout time.Duration
	// Target is a registered Memory.Target that the bytes are written to; 0 is
	// none. If the client ends in between, the publication is received when the
	// target has been given its name, and offered again otherwise.
	Target MemoryID
}

// GetOptions are those of DevMGet and MGetH2D.
type GetOptions struct {
	// Timeout bounds the wait for keys that are not there yet; 0 is not
	// at all. Each key is on its own: one that is missing holds up no other.
	Timeout time.Duration
	// Replica makes the memory that was read into another source of the key,
	// which is read when the first one has gone. The caller leaves its bytes
	// alone until DevLocalDelete. DevMGet only, and only for whole reads.
	Replica bool
}

// Validate reports what is wrong, as ErrInvalid.
func (o GetOptions) Validate() error { return CheckTimeout(o.Timeout) }

// SubscribeOptions are those of DevSubscribe.
type SubscribeOptions struct {
	// Timeout bounds the wait for keys that are not published yet; 0
	// is OneKeyTimeout for one key, and ManyKeysTimeout for several.
	Timeout time.Duration
}

// EnsureDefaults fills in what was left out, for a call of n keys.
func (o *SubscribeOptions) EnsureDefaults(n int) {
	if o.Timeout != 0 {
		return
	}
	o.Timeout = OneKeyTimeout
	if n > 1 {
		o.Timeout = ManyKeysTimeout
	}
}

// Validate reports what is wrong, as ErrInvalid.
func (o SubscribeOptions) Validate() error { return CheckTimeout(o.Timeout) }

// CheckTimeout refuses, as ErrInvalid, what nobody waits for.
func CheckTimeout(d time.Duration) error {
	if d < 0 || d > MaxTimeout {
		return fmt.Errorf("%w: a timeout of %v: 0 to %v", ErrInvalid, d, MaxTimeout)
	}
	return nil
}
