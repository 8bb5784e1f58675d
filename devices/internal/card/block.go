package card

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// Address is an address in a card's memory, which is meaningless on the host.
type Address uint64

// At returns the address n bytes further on.
func (a Address) At(n devices.Size) Address { return a + Address(n) }

// Block is memory that a runtime has allocated, or opened, for a card.
type Block struct {
	Addr Address
	// Size is the number of bytes at Addr.
	Size devices.Size
	// Kind is the kind of handle by which the block can be exported, "" if it can't be.
	Kind devices.HandleKind
	// Own is the family's own record of the block, nil for none.
	Own any
	// Give returns the block to the runtime, on a thread that is bound to the card.
	Give func() error

	// counted is its share of the card's memory, 0 for memory of another process.
	counted devices.Size
	// handle is the handle by which it was exported, and unname revokes it, if it does not
	// end with the memory. Card.handleMu guards both.
	handle []byte
	unname func() error
}

// BlockOf returns the block of a checked span.
func BlockOf(s devices.Span) *Block {
	return s.Mem.Handle().(*Block) //nolint:errcheck // each memory of a card has one
}

// AddressOf returns the address of a checked span.
func AddressOf(s devices.Span) Address { return BlockOf(s).Addr.At(devices.Size(s.Off)) }

// RoundUp returns the smallest multiple of unit that is at least n; on overflow the result
// is less than n.
func RoundUp(n, unit devices.Size) devices.Size {
	if rest := n % unit; rest != 0 {
		n += unit - rest
	}
	return n
}

// Take counts whole bytes as used, has make allocate them from the runtime, and returns the
// first n as a Memory. make is called on a thread that is bound to the card; finish, if not
// nil, prepares the block afterwards, on any thread.
//
// Errors:
//   - devices.ErrRange for 0 bytes;
//   - devices.ErrOutOfMemory if the card, or its configured size, has no room.
func (c *Card) Take(ctx context.Context, n, whole devices.Size,
	make func(whole devices.Size) (*Block, error), finish func(*Block) error,
) (*devices.Memory, error) {
	leave, err := c.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if n == 0 {
		return nil, fmt.Errorf("allocate 0 bytes on %s: %w", c.spec.Info.Name, devices.ErrRange)
	}
	epoch := c.Epoch()
	if err = c.Failed(); err != nil {
		return nil, err
	}
	if err = c.reserve(n, whole); err != nil {
		return nil, err
	}
	b, err := c.makeBlock(n, func() (*Block, error) { return make(whole) })
	if err == nil && finish != nil {
		if err = finish(b); err != nil {
			err = errors.Join(err, c.give(b))
		}
	}
	if err != nil {
		c.unreserve(whole)
		return nil, err
	}
	b.counted = whole
	return c.memory(b, n, epoch), nil
}

// makeBlock calls make, on a bound thread, for a block of which n bytes were requested.
func (c *Card) makeBlock(n devices.Size, make func() (*Block, error)) (b *Block, err error) {
	err = c.On(func() (err error) {
		b, err = make()
		return err
	})
	if err != nil {
		return nil, c.AllocError(n, err)
	}
	return b, nil
}

// memory returns the first n bytes of a block of the given epoch as a Memory.
func (c *Card) memory(b *Block, n devices.Size, epoch devices.Epoch) *devices.Memory {
	c.mu.Lock()
	c.blocks[b] = struct{}{}
	c.mu.Unlock()
	return devices.NewMemory(devices.MemorySpec{
		Device: c.self, Size: n, Epoch: epoch, Handle: b,
		Free: func() error { return c.retire(b) },
	})
}

// retire returns a block to the runtime, unless Close has done so. For a failed card it
// only updates the accounting.
func (c *Card) retire(b *Block) error {
	c.life.RLock()
	defer c.life.RUnlock()
	c.mu.Lock()
	_, held := c.blocks[b]
	if held {
		delete(c.blocks, b)
		c.used -= b.counted
	}
	c.mu.Unlock()
	if !held {
		return nil
	}
	return c.give(b)
}

// give returns a block to the runtime, unless the card has failed.
func (c *Card) give(b *Block) error {
	if c.Failed() != nil {
		return nil
	}
	return c.On(func() error { return c.end(b) })
}

// end revokes the handle of a block and returns the block. The thread is bound to the card.
func (c *Card) end(b *Block) error {
	c.handleMu.Lock()
	unname := b.unname
	if b.handle != nil {
		delete(c.named, string(b.handle))
	}
	c.handleMu.Unlock()
	if unname == nil {
		return b.Give()
	}
	return errors.Join(unname(), c.On(b.Give))
}

// Left returns how much of its size the card may still allocate, in bytes.
func (c *Card) Left() devices.Size {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spec.Info.Total - c.used
}

// reserve counts whole bytes, of which n were requested, as used if they fit into the
// configured size. If rounding up overflowed, whole is less than n.
func (c *Card) reserve(n, whole devices.Size) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if left := c.spec.Info.Total - c.used; whole > left || whole < n {
		return &devices.OutOfMemoryError{Device: c.spec.Info.Name, Asked: n, Free: left}
	}
	c.used += whole
	return nil
}

func (c *Card) unreserve(n devices.Size) {
	c.mu.Lock()
	c.used -= n
	c.mu.Unlock()
}

// AllocError turns a runtime's out-of-memory error into a devices.OutOfMemoryError, with
// the memory that the card has left for all programs.
func (c *Card) AllocError(n devices.Size, err error) error {
	if !c.spec.Runtime.OutOfMemory(err) {
		return fmt.Errorf("allocate %v on %s: %w", n, c.spec.Info.Name, err)
	}
	free, ferr := c.Free()
	switch {
	case c.Failed() != nil:
		return errors.Join(ferr, err)
	case ferr != nil:
		return fmt.Errorf("allocate %v on %s: %w: %w (how much is free: %w)", n, c.spec.Info.Name, devices.ErrOutOfMemory, err, ferr)
	}
	oom := &devices.OutOfMemoryError{Device: c.spec.Info.Name, Asked: n, Free: min(free, c.Left())}
	return fmt.Errorf("%w (the driver says %w)", oom, err)
}
