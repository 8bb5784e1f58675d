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

// Runtime has the calls of a vendor's library that a Card makes by itself. All
// but Bind are made on a thread that Bind has been called on.
type Runtime interface {
	// Bind makes the card the one that the calling thread works with.
	Bind() error
	// Retain makes the card ready for this process once more. The thread may be
	// bound to none afterwards. Release ends that, or what opening it did.
	Retain() error
	Release() error
	// FreeMemory returns what the card has left for all programs, in bytes.
	FreeMemory() (devices.Size, error)
	// Sticky reports whether the card is of no use to the process after an error.
	Sticky(err error) bool
	// OutOfMemory reports whether an allocation failed for want of memory.
	OutOfMemory(err error) bool
}

// Spec describes a card that has been opened.
type Spec struct {
	Info    devices.Info
	Runtime Runtime
	// Log gets the failure of the card and what could not be returned.
	Log *zap.Logger
	// Set is the one of the card's driver.
	Set *Set
	// Clear gives back what the family keeps for a card that is closed, on a
	// thread that is bound to it.
	Clear func() error
	// Explain makes the error by which the card fails read as Failed: for a
	// runtime whose own text does not tell what follows from it.
	Explain bool
}

// Card is the part of an opened device that families share. All methods may be
// called from any goroutine.
type Card struct {
	// Log gets what could not be returned.
	Log *zap.Logger

	spec Spec
	// self is the device as its users know it.
	self devices.Device

	// epoch changes once, when the card fails; failure is why.
	epoch   atomic.Uint64
	failure atomic.Pointer[failure]

	// life is held for reading by every operation, and for writing by Close.
	life life.Life

	mu sync.Mutex
	// used counts allocated bytes, as the card rounds them.
	// +checklocks:mu
	used devices.Size
	// blocks are those that the runtime still has.
	// +checklocks:mu
	blocks map[*Block]struct{}

	handleMu sync.Mutex
	// opened are the handles of other processes that are open here, by their
	// bytes. A runtime may refuse to open one twice.
	// +checklocks:handleMu
	opened map[string]*opened
	// named are the handles of this card's own memory.
	// +checklocks:handleMu
	named map[string]struct{}
}

// failure is why a card is of no use any more.
type failure struct{ err error }

// New makes a card. SetSelf must follow before any other call.
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

// SetSelf tells the device that the card's memories belong to: the one that
// embeds the card, or what is around that.
func (c *Card) SetSelf(self devices.Device) { c.self = self }

// Info returns the facts.
func (c *Card) Info() devices.Info { return c.spec.Info }

// Epoch returns the incarnation, which lasts from Open to Close or to the card's
// failure.
func (c *Card) Epoch() devices.Epoch { return devices.Epoch(c.epoch.Load()) }

// Enter begins an operation; leave ends it. Errors are those of life.Life.
//
// +checklocksignore: what it locks is the caller's to unlock, by leave.
func (c *Card) Enter(ctx context.Context) (leave func(), err error) { return c.life.Enter(ctx, c.self) }

// Begin checks the span of an operation with n bytes of the other side, and
// enters.
func (c *Card) Begin(ctx context.Context, s devices.Span, n int) (leave func(), err error) {
	return c.life.Begin(ctx, c.self, s, n)
}

// BeginCopy checks both spans of a copy inside the card, and enters.
func (c *Card) BeginCopy(ctx context.Context, dst, src devices.Span) (leave func(), err error) {
	return c.life.BeginCopy(ctx, c.self, dst, src)
}

// On calls fn on a thread that works with the card, unless the card has failed.
// Every call that is about the card is made in here. On inside of On binds the
// card again.
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

// Failed returns why the card takes no more work, which is a devices.ErrDevice;
// nil where it does.
func (c *Card) Failed() error {
	if f := c.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// fail ends the use of the card.
func (c *Card) fail(cause error) {
	err := fmt.Errorf("%s has failed, and stays so until the next mount: %w", c.spec.Info.Name, cause)
	if !c.failure.CompareAndSwap(nil, &failure{err}) {
		return
	}
	c.epoch.Store(uint64(devices.NextEpoch(c.Epoch())))
	c.Log.Error("device has failed, its memory is lost", zap.Error(cause))
}

// Usage tells what this card has allocated, and how much it has left, whoever
// uses the rest. A card that has failed has nothing free.
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

// Close waits for the operations in flight and gives everything back, except of
// a card that has failed.
func (c *Card) Close() error { return c.life.Close(c.giveBack) }

// giveBack gives back what the card has once it is closed.
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
