package opencl

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// Alloc creates a buffer and makes the driver allocate its memory immediately, so that a
// driver that allocates lazily, at the first use, fails here.
func (d *device) Alloc(ctx context.Context, n devices.Size) (*devices.Memory, error) {
	return d.alloc(ctx, n, n, d.newBuffer)
}

// alloc allocates n bytes in a buffer that fresh makes. more is the part of it that the
// machine's memory does not hold yet.
func (d *device) alloc(ctx context.Context, n, more devices.Size, fresh func(context.Context, devices.Size) (*buffer, error)) (*devices.Memory, error) {
	leave, err := d.life.Enter(ctx, d.self)
	if err != nil {
		return nil, err
	}
	defer leave()
	if n == 0 {
		return nil, fmt.Errorf("allocate 0 bytes on %s: %w", d.info.Name, devices.ErrRange)
	}
	if n > d.info.MaxAlloc && n <= d.info.Total {
		return nil, fmt.Errorf("one allocation is at most %v: %w", d.info.MaxAlloc, d.outOfMemory(n, d.info.MaxAlloc))
	}
	if err = d.reserve(n, more); err != nil {
		return nil, err
	}
	b, err := fresh(ctx, n)
	if err != nil {
		d.unreserve(n)
		return nil, err
	}
	return devices.NewMemory(devices.MemorySpec{
		Device: d.self, Size: n, Epoch: d.epoch, Handle: b,
		Free: func() error { return d.retire(b) },
	}), nil
}

func (d *device) outOfMemory(asked, free devices.Size) error {
	return &devices.OutOfMemoryError{Device: d.info.Name, Asked: asked, Free: free}
}

// reserve counts n bytes as used if they fit into the configured size and, for memory
// shared with the host, more of them into the host's available memory: the host would not
// refuse later, but kill a process.
func (d *device) reserve(n, more devices.Size) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.info.Total - d.used
	if n > left {
		return d.outOfMemory(n, left)
	}
	if d.entry.unified {
		if host, ok := d.system.available(); ok && more > host {
			return d.outOfMemory(n, host)
		}
	}
	d.used += n
	return nil
}

func (d *device) unreserve(n devices.Size) {
	d.mu.Lock()
	d.used -= n
	d.mu.Unlock()
}

// newBuffer creates a buffer whose memory is allocated.
func (d *device) newBuffer(ctx context.Context, n devices.Size) (*buffer, error) {
	b, err := d.makeBuffer(n)
	if err != nil {
		return nil, d.allocError(n, err)
	}
	d.add(b)
	if err := d.commit(ctx, b); err != nil {
		return nil, errors.Join(d.allocError(n, err), d.drop(b))
	}
	return b, nil
}

// add records a buffer that the driver holds.
func (d *device) add(b *buffer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.buffers[b] = struct{}{}
}

// makeBuffer has the driver create a buffer. If the device is the host's processor, its
// memory is allocated from the kernel here, and returned to it on release: a driver would
// use malloc, which keeps freed memory.
func (d *device) makeBuffer(n devices.Size) (*buffer, error) {
	switch {
	case d.entry.isHost():
		own, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return nil, check("mmap ("+err.Error()+")", codeOutOfHostMemory)
		}
		return d.bufferOver(own)
	case d.entry.unified:
		return d.bufferOf(clMemAllocHostPtr, n, nil)
	}
	return d.bufferOf(0, n, nil)
}

// bufferOver creates a buffer that uses a mapping in place, and owns it.
func (d *device) bufferOver(own []byte) (*buffer, error) {
	b, err := d.bufferOf(clMemUseHostPtr, devices.Size(len(own)), own)
	if err != nil {
		return nil, errors.Join(err, unmapOwn(own))
	}
	return b, nil
}

func (d *device) bufferOf(flags uintptr, n devices.Size, own []byte) (*buffer, error) {
	mem, err := d.api.createBuffer(d.context, clMemReadWrite|flags, uint64(n), own)
	if err != nil {
		return nil, err
	}
	return &buffer{mem: mem, size: n, own: own}, nil
}

// unmapOwn frees memory that makeBuffer allocated, if any.
func unmapOwn(own []byte) error {
	if own == nil {
		return nil
	}
	return unix.Munmap(own)
}

// allocError turns the driver's out-of-memory error into a devices.OutOfMemoryError.
func (d *device) allocError(n devices.Size, err error) error {
	if !isOutOfMemory(err) {
		return fmt.Errorf("allocate %v on %s: %w", n, d.info.Name, err)
	}
	d.mu.Lock()
	left := d.info.Total - (d.used - n)
	d.mu.Unlock()
	free := d.api.free(d.entry, d.system, left)
	return fmt.Errorf("%w (the driver says %w)", d.outOfMemory(n, free), err)
}

// touch makes the driver allocate the memory: all of it if it is the host's, which is
// allocated page by page, otherwise by one byte, which is sufficient.
func (d *device) touch(ctx context.Context, b *buffer) error {
	n := devices.Size(1)
	if d.entry.unified {
		n = b.size
	}
	return d.fillCommands(ctx, place{mem: b.mem}, n, 0)
}

// retire destroys a buffer that is no longer needed, immediately or when its last user
// leaves.
func (d *device) retire(b *buffer) error {
	if !d.gate.retire(b) {
		return nil
	}
	return d.destroy(b)
}

// destroy frees a buffer without users.
func (d *device) destroy(b *buffer) error {
	err := d.drop(b)
	d.unreserve(b.size)
	return errors.Join(err, d.releaseLast())
}

// destroyLast destroys the buffers whose last user has left.
func (d *device) destroyLast(bufs []*buffer) {
	for _, b := range bufs {
		if err := d.destroy(b); err != nil {
			d.log.Warn("buffer not released", zap.Error(err))
		}
	}
}

// drop unmaps the buffer and releases it to the driver.
func (d *device) drop(b *buffer) error {
	err := errors.Join(d.unmap(b), d.api.releaseBuffer(b.mem))
	if err == nil {
		// If the release failed, the driver may still use the memory: better leak it than
		// unmap it.
		err = unmapOwn(b.own)
	}
	d.mu.Lock()
	delete(d.buffers, b)
	d.mu.Unlock()
	return err
}
