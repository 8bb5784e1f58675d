package card

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
)

// Pinner is the ability of a card to register host memory.
type Pinner struct {
	card *Card
	// register and unregister are called on a thread that is bound to the card.
	register, unregister func(p []byte) error
}

var _ devices.Pinner = Pinner{}

// NewPinner returns the ability of a card. register and unregister take the same
// memory, and are called on a thread that is bound to the card.
func NewPinner(c *Card, register, unregister func(p []byte) error) Pinner {
	return Pinner{card: c, register: register, unregister: unregister}
}

// PinHost registers p with the runtime, for all cards. p should not be Go's
// memory, which the collector may give to others once unpin was called, and
// stays registered in whole pages. What another device of this driver has
// registered is used as it is, and what overlaps with that is refused, as is
// what others in this process have registered: how much of p that is no runtime
// tells, and it may end at any time. Close unpins what is left.
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

// begin registers host memory with the card, which stays ready as long: another
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

// release ends one Retain, unless the card has failed.
func (c *Card) release() error {
	if c.Failed() != nil {
		return nil
	}
	return c.On(c.spec.Runtime.Release)
}

// Pinned reports whether the card may use all of p, which is not empty, as
// registered.
func (c *Card) Pinned(p []byte) bool { return c.spec.Set.pins.Covers(c, p) }

// Uniform returns how many bytes of p, from its begin on, are registered in one
// piece or not at all: at least 1 of a p that is not empty.
func (c *Card) Uniform(p []byte) int { return c.spec.Set.pins.Uniform(p) }
