package cuda

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// virtualFrom is the size from which memory is mapped physical memory (VMM),
// in bytes. Less would lose too much to the rounding.
const virtualFrom = 16 * devices.MiB

// block is memory that the driver has given, or opened for, this device.
type block struct {
	// addr is the address at which the memory begins.
	addr address
	// counted is its share of the card's memory, 0 for another process's.
	counted devices.Size
	// kind is the kind by which the block can be exported, "" for not at all.
	kind devices.HandleKind
	// virtual is set for mapped physical memory.
	virtual *mapping
	// give gives it back, with the device's context.
	give func() error
}

// blockOf returns the block of a span that has been checked.
func blockOf(s devices.Span) *block {
	return s.Mem.Handle().(*block) //nolint:errcheck // each memory of this device has one
}

// Alloc takes memory of the card, at once.
func (d *device) Alloc(ctx context.Context, n devices.Size) (*devices.Memory, error) {
	leave, err := d.life.Enter(ctx, d)
	if err != nil {
		return nil, err
	}
	defer leave()
	if n == 0 {
		return nil, fmt.Errorf("allocate 0 bytes on %s: %w", d.info.Name, devices.ErrRange)
	}
	if d.entry.virtual && n >= virtualFrom {
		// Where the rounding is what does not fit, plain memory may.
		if whole := roundUp(n, d.units.plain); whole >= n && whole <= d.left() {
			return d.take(n, whole, d.newVirtual)
		}
	}
	return d.take(n, n, d.newPlain)
}

// take reserves counted bytes, has them made, and hands out n of them.
func (d *device) take(n, counted devices.Size, make func(devices.Size) (*block, error)) (*devices.Memory, error) {
	if err := d.reserve(n, counted); err != nil {
		return nil, err
	}
	var b *block
	err := d.on(func() (err error) {
		if b, err = make(counted); err != nil {
			return d.allocError(n, err)
		}
		return nil
	})
	if err != nil {
		d.unreserve(counted)
		return nil, err
	}
	b.counted = counted
	return d.memory(b, n), nil
}

// memory hands out a block.
func (d *device) memory(b *block, n devices.Size) *devices.Memory {
	d.mu.Lock()
	d.blocks[b] = struct{}{}
	d.mu.Unlock()
	return devices.NewMemory(devices.MemorySpec{
		Device: d, Size: n, Epoch: d.Epoch(), Handle: b,
		Free: func() error { return d.retire(b) },
	})
}

// retire gives a block back, unless Close has. Of a card that has failed only
// the account is settled.
func (d *device) retire(b *block) error {
	d.life.RLock()
	defer d.life.RUnlock()
	return d.retireHeld(b)
}

// retireHeld is retire for those who are inside of an operation.
func (d *device) retireHeld(b *block) error {
	d.mu.Lock()
	_, held := d.blocks[b]
	delete(d.blocks, b)
	d.mu.Unlock()
	if !held {
		return nil
	}
	d.unreserve(b.counted)
	if d.failed() != nil {
		return nil
	}
	return d.on(b.give)
}

// newPlain takes memory from cuMemAlloc.
func (d *device) newPlain(n devices.Size) (*block, error) {
	p, err := d.api.alloc(n)
	if err != nil {
		return nil, err
	}
	return &block{addr: p, give: func() error { return d.api.free(p) }}, nil
}

// left returns what the device may still take of its size.
func (d *device) left() devices.Size {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.info.Total - d.used
}

// reserve counts bytes as used if they fit the size that was set; n is what was
// asked for.
func (d *device) reserve(n, counted devices.Size) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.info.Total - d.used
	if counted > left {
		return &devices.OutOfMemoryError{Device: d.info.Name, Asked: n, Free: left}
	}
	d.used += counted
	return nil
}

func (d *device) unreserve(n devices.Size) {
	d.mu.Lock()
	d.used -= n
	d.mu.Unlock()
}

// allocError makes the driver's out of memory ours, with what the card has left
// for all programs. It is called with the device's context.
func (d *device) allocError(n devices.Size, err error) error {
	if codeOf(err) != codeOutOfMemory {
		return fmt.Errorf("allocate %v on %s: %w", n, d.info.Name, err)
	}
	free, ferr := d.api.memInfo()
	if ferr != nil {
		return errors.Join(ferr, err)
	}
	oom := &devices.OutOfMemoryError{Device: d.info.Name, Asked: n, Free: min(free, d.left())}
	return fmt.Errorf("%w (the driver says %w)", oom, err)
}

// roundUp is the least multiple of unit from n on; 0 if there is none.
func roundUp(n, unit devices.Size) devices.Size {
	if rest := n % unit; rest != 0 {
		n += unit - rest
	}
	return n
}
