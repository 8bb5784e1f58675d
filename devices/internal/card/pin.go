package card

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
)

// Pinner implements devices.Pinner for a card.
type Pinner struct {
	card *Card
	// register and unregister are called on a thread that is bound to the card.
	register, unregister func(p []byte) error
}

var _ devices.Pinner = Pinner{}

// NewPinner returns the Pinner of a card. register and unregister receive the same memory,
// and are called on a thread that is bound to the card.
func NewPinner(c *Card, register, unregister func(p []byte) error) Pinner {
	return Pinner{card: c, register: register, unregister: unregister}
}

// PinHost registers p with the runtime, for all cards. p should not be Go's memory, which
// the collector may reuse once unpin was called, and which stays registered in whole pages.
// Memory that another device of this driver has registered is used as it is, and memory
// that only partly overlaps it is refused. So is memory that other code in this process has
// registered: no runtime reports how much of p that is, and it may be unregistered at any
// time. Close unpins whatever is left.
func (p Pinner) PinHost(mem []byte) (unpin func(), err error) {
	c := p.card
	leave, err := c.Enter(context.Background())
	if err != nil {
		return nil, err
	}
	defer leave()
	if len(mem) == 0 {
		return func() {}, nil
	}
	undo, err := c.spec.Set.pins.Pin(c, mem, func() (func() error, error) { return p.begin(mem) })
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() {
		if err := undo(); err != nil {
			c.Log.Warn("host memory not unpinned", zap.Error(err))
		}
	}), nil
}

// begin registers host memory with the card and retains the card for as long: another
// device may use the memory after this one was closed.
func (p Pinner) begin(mem []byte) (end func() error, err error) {
	c := p.card
	if err := c.On(c.spec.Runtime.Retain); err != nil {
		return nil, err
	}
	if err := c.On(func() error { return p.register(mem) }); err != nil {
		return nil, errors.Join(err, c.release())
	}
	return func() error {
		if c.Failed() != nil {
			return nil
		}
		return errors.Join(c.On(func() error { return p.unregister(mem) }), c.release())
	}, nil
}

// release undoes one Retain, unless the card has failed.
func (c *Card) release() error {
	if c.Failed() != nil {
		return nil
	}
	return c.On(c.spec.Runtime.Release)
}

// Pinned reports whether the card may treat all of p, which must not be empty, as
// registered.
func (c *Card) Pinned(p []byte) bool { return c.spec.Set.pins.Covers(c, p) }

// Uniform returns the length of the prefix of p that is registered in one piece or not at
// all: at least 1 if p is not empty.
func (c *Card) Uniform(p []byte) int { return c.spec.Set.pins.Uniform(p) }
