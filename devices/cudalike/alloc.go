package cudalike

import (
	"context"
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// shareUnit is the unit in which memory that is exported is taken, in bytes. HIP gives no
// handle of more than that which is not whole pages, and what shares whole
// blocks, as CUDA does, shares those of others with smaller ones.
const shareUnit = 2 * devices.MiB

// block is device memory that a Memory stands for.
type block struct {
	at address
	// size is the number of bytes at that address.
	size devices.Size
	// shared says that the memory may be exported.
	shared bool
	// name is the name under which the memory was exported, nil until then. device.mu
	// guards it.
	name []byte
	// from is the mapping that an imported memory is a part of; nil for our
	// own.
	from *mapping
}

// Alloc takes memory of the runtime's, which has it at once.
func (d *device) Alloc(ctx context.Context, n devices.Size) (*devices.Memory, error) {
	return d.allocate(ctx, n, false)
}

func (d *device) allocate(ctx context.Context, n devices.Size, shared bool) (*devices.Memory, error) {
	leave, err := d.life.Enter(ctx, d.self)
	if err != nil {
		return nil, err
	}
	defer leave()
	if n == 0 {
		return nil, fmt.Errorf("allocate 0 bytes on %s: %w", d.info.Name, devices.ErrRange)
	}
	epoch := d.Epoch()
	if err = d.failed(); err != nil {
		return nil, fmt.Errorf("allocate %v: %w", n, err)
	}
	whole := n
	if rest := n % shareUnit; shared && rest != 0 {
		whole += shareUnit - rest
	}
	if err = d.reserve(n, whole); err != nil {
		return nil, err
	}
	at, err := d.takeWhole(n, whole)
	if err != nil {
		d.unreserve(whole)
		return nil, err
	}
	b := &block{at: at, size: whole, shared: shared}
	d.mu.Lock()
	d.blocks[b] = struct{}{}
	d.mu.Unlock()
	return devices.NewMemory(devices.MemorySpec{
		Device: d.self, Size: n, Epoch: epoch, Handle: b,
		Free: func() error { return d.giveBack(b) },
	}), nil
}

// takeWhole takes whole bytes, of which those from n on are zero: whoever opens
// a handle sees them, and must not see what somebody left there.
func (d *device) takeWhole(n, whole devices.Size) (address, error) {
	at, err := d.take(whole)
	if err != nil || whole == n {
		return at, err
	}
	rest := target{at: at, room: uint64(whole)}.plus(n)
	err = d.withStream(func(s stream) error {
		return d.work(s, func() error { return d.t.fill(rest, 0, uint64(whole-n), s) })
	})
	if err != nil && d.failed() == nil {
		err = errors.Join(err, d.on(func() error { return d.t.free(at) }))
	}
	return at, err
}

// reserve counts whole bytes, of which n were asked for, as used if they fit the
// size that was set. A sum that lapped is less than n.
func (d *device) reserve(n, whole devices.Size) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if left := d.info.Total - d.used; whole > left || whole < n {
		return &devices.OutOfMemoryError{Device: d.info.Name, Asked: n, Free: left}
	}
	d.used += whole
	return nil
}

func (d *device) unreserve(n devices.Size) {
	d.mu.Lock()
	d.used -= n
	d.mu.Unlock()
}

// take has the runtime allocate n bytes.
func (d *device) take(n devices.Size) (at address, err error) {
	err = d.on(func() (err error) {
		at, err = d.t.alloc(uint64(n))
		return err
	})
	if !isCode(err, d.t.codes.outOfMemory...) {
		if err != nil {
			err = fmt.Errorf("allocate %v on %s: %w", n, d.info.Name, err)
		}
		return at, err
	}
	free, ferr := d.left()
	oom := &devices.OutOfMemoryError{Device: d.info.Name, Asked: n, Free: min(free, d.info.Total)}
	return 0, fmt.Errorf("%w (the runtime says %w)", oom, errors.Join(err, ferr))
}

// giveBack frees a block, unless Close has done it or the device has failed:
// the runtime knows nothing of its memory then.
func (d *device) giveBack(b *block) error {
	d.life.RLock()
	defer d.life.RUnlock()
	d.mu.Lock()
	_, ours := d.blocks[b]
	if ours {
		delete(d.blocks, b)
		d.used -= b.size
	}
	failed := d.failure != nil
	d.mu.Unlock()
	if !ours || failed {
		return nil
	}
	return d.freeBlock(b)
}

// freeBlock returns a block to the runtime, and ends its name before.
func (d *device) freeBlock(b *block) error {
	d.mu.Lock()
	name := b.name
	d.mu.Unlock()
	var err error
	if name != nil && d.t.ipc.unexport != nil {
		err = d.on(func() error { return d.t.ipc.unexport(name) })
	}
	return errors.Join(err, d.on(func() error { return d.t.free(b.at) }))
}
