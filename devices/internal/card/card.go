package card

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/life"
)

// Runtime contains the calls of a vendor's library that a Card makes itself. All but Bind
// are made on a thread on which Bind has been called.
type Runtime struct {
	// Bind makes the card current for the calling thread.
	Bind func() error
	// Retain makes the card ready for this process once more. The thread may be unbound
	// afterwards. Release undoes one Retain, or the opening of the card.
	Retain  func() error
	Release func() error
	// FreeMemory returns the memory that the card has left for all programs, in bytes.
	FreeMemory func() (devices.Size, error)
	// Sticky reports whether the card is unusable for the process after an error.
	Sticky func(err error) bool
	// OutOfMemory reports whether an allocation failed for lack of memory.
	OutOfMemory func(err error) bool
}

// Spec describes an opened card.
type Spec struct {
	Info    devices.Info
	Runtime Runtime
	// Log receives the failure of the card and errors that could not be returned.
	Log *zap.Logger
	// Set is the set of the card's driver.
	Set *Set
	// Clear frees the resources that the family holds for a card that is closed, on a
	// thread that is bound to it.
	Clear func() error
	// Explain makes On return Failed's error in place of the runtime's when the card fails:
	// for a runtime whose own text does not explain the consequences.
	Explain bool
}

// Card is the part of an opened device that families share. All methods are safe for
// concurrent use.
type Card struct {
	// Log receives errors that could not be returned.
	Log *zap.Logger

	spec Spec
	// self is the device as its users know it.
	self devices.Device

	// epoch changes once, when the card fails; failure is the reason.
	epoch   atomic.Uint64
	failure atomic.Pointer[failure]

	// life is held for reading by every operation, and for writing by Close.
	life life.Life

	mu sync.Mutex
	// used counts allocated bytes, as the card rounds them.
	// +checklocks:mu
	used devices.Size
	// blocks are the blocks that the runtime still holds.
	// +checklocks:mu
	blocks map[*Block]struct{}

	handleMu sync.Mutex
	// opened holds the handles of other processes that are open here, by their bytes. A
	// runtime may refuse to open one twice.
	// +checklocks:handleMu
	opened map[string]*opened
	// named holds the handles of this card's own memory.
	// +checklocks:handleMu
	named map[string]struct{}
}

// failure is the reason why a card is no longer usable.
type failure struct{ err error }

// New returns a card. SetSelf must be called before any other method.
func New(spec Spec) *Card {
	c := &Card{
		Log: spec.Log, spec: spec,
		blocks: map[*Block]struct{}{},
		opened: map[string]*opened{},
		named:  map[string]struct{}{},
	}
	c.epoch.Store(uint64(devices.NextEpoch(0)))
	return c
}

// SetSelf sets the device that the card's memories belong to: the one that embeds the card,
// or a wrapper of that.
func (c *Card) SetSelf(self devices.Device) { c.self = self }

// Info returns the description of the device.
func (c *Card) Info() devices.Info { return c.spec.Info }

// Epoch returns the incarnation, which lasts from Open until Close or the card's failure.
func (c *Card) Epoch() devices.Epoch { return devices.Epoch(c.epoch.Load()) }

// Enter begins an operation; leave ends it. Errors are those of life.Life.
//
// +checklocksignore: what it locks is the caller's to unlock, by leave.
func (c *Card) Enter(ctx context.Context) (leave func(), err error) { return c.life.Enter(ctx, c.self) }

// Begin checks the span of an operation whose other side has n bytes, and enters.
func (c *Card) Begin(ctx context.Context, s devices.Span, n int) (leave func(), err error) {
	return c.life.Begin(ctx, c.self, s, n)
}

// BeginCopy checks both spans of a copy inside the card, and enters.
func (c *Card) BeginCopy(ctx context.Context, dst, src devices.Span) (leave func(), err error) {
	return c.life.BeginCopy(ctx, c.self, dst, src)
}

// Resume continues an epoch of an earlier process, or begins a later one. It does not go back
// to an epoch before the failure of the card.
func (c *Card) Resume(e devices.Epoch) error {
	now := c.epoch.Load()
	if err := c.Failed(); err != nil {
		return err
	}
	if !c.epoch.CompareAndSwap(now, uint64(e)) {
		return c.Failed()
	}
	return nil
}

// On calls fn on a thread that is bound to the card, unless the card has failed. Every call
// that concerns the card is made in On. A nested On binds the card again.
func (c *Card) On(fn func() error) error {
	if err := c.Failed(); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.spec.Runtime.Bind()
	if err == nil {
		err = fn()
	}
	if err != nil && c.spec.Runtime.Sticky(err) {
		c.fail(err)
		if c.spec.Explain {
			return c.Failed()
		}
	}
	return err
}

// Failed returns the reason why the card accepts no more work, a devices.ErrDevice; nil if
// it has not failed.
func (c *Card) Failed() error {
	if f := c.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// fail marks the card as failed and starts a new epoch.
func (c *Card) fail(cause error) {
	err := fmt.Errorf("%s has failed, and remains unusable until the next mount: %w", c.spec.Info.Name, cause)
	if !c.failure.CompareAndSwap(nil, &failure{err}) {
		return
	}
	c.epoch.Store(uint64(devices.NextEpoch(c.Epoch())))
	c.Log.Error("device has failed, its memory is lost", zap.Error(cause))
}

// Usage returns the memory that this card has allocated, and how much is left, whichever
// program uses the rest. A failed card has nothing free.
func (c *Card) Usage() (devices.Usage, error) {
	leave, err := c.Enter(context.Background())
	if err != nil {
		return devices.Usage{}, err
	}
	defer leave()
	var free devices.Size
	if c.Failed() == nil {
		if free, err = c.Free(); err != nil {
			return devices.Usage{}, fmt.Errorf("free memory of %s: %w", c.spec.Info.Name, err)
		}
	}
	left := c.Left()
	total := c.spec.Info.Total
	return devices.Usage{Total: total, Used: total - left, Free: min(free, left)}, nil
}

// Free returns the memory that the card has left for all programs, in bytes.
func (c *Card) Free() (free devices.Size, err error) {
	err = c.On(func() (err error) {
		free, err = c.spec.Runtime.FreeMemory()
		return err
	})
	return free, err
}

// Close waits for the operations in flight and frees everything, except on a failed card.
func (c *Card) Close() error { return c.life.Close(c.giveBack) }

// giveBack frees the card's resources when it is closed.
func (c *Card) giveBack() error {
	errs := []error{c.spec.Set.leave(c)}
	if c.Failed() != nil {
		return errs[0]
	}
	c.mu.Lock()
	left := c.blocks
	c.blocks = map[*Block]struct{}{}
	c.mu.Unlock()
	for b := range left {
		errs = append(errs, c.On(func() error { return c.end(b) }))
	}
	errs = append(errs, c.On(c.spec.Clear), c.release())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close %s: %w", c.spec.Info.Name, err)
	}
	return nil
}
