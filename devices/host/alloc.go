package host

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/hostmem"
)

// allocPiece is the number of bytes allocated between two checks of the context.
const allocPiece = 64 * devices.MiB

// Alloc allocates n bytes as an unlinked file of the tier, including its blocks. They are
// zero.
func (d *Device) Alloc(ctx context.Context, n devices.Size) (*devices.Memory, error) {
	leave, err := d.life.Enter(ctx, d)
	if err != nil {
		return nil, err
	}
	defer leave()
	block, err := d.allocBlock(ctx, n)
	if err != nil {
		return nil, err
	}
	d.blocksMu.Lock()
	d.blocks[block] = struct{}{}
	d.blocksMu.Unlock()
	return devices.NewMemory(devices.MemorySpec{
		Device: d,
		Size:   n,
		Epoch:  d.Epoch(),
		Handle: block,
		Free:   func() error { return d.free(block, n) },
	}), nil
}

// allocBlock allocates counted, mapped memory. The store must be open.
func (d *Device) allocBlock(ctx context.Context, n devices.Size) (*hostmem.Block, error) {
	switch {
	case n == 0:
		return nil, fmt.Errorf("allocation of 0 bytes on %s: %w", d.info.Name, devices.ErrRange)
	case n > d.info.Total:
		return nil, d.outOfMemory(n)
	}
	if err := d.limit.take(roundUp(n)); err != nil {
		if oom, ok := errors.AsType[*devices.OutOfMemoryError](err); ok {
			oom.Asked = n
		}
		return nil, err
	}
	mapping, err := d.mapUnlinked(ctx, n)
	if err != nil {
		d.limit.give(roundUp(n))
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ENOMEM) {
			return nil, d.outOfMemory(n)
		}
		return nil, err
	}
	return hostmem.NewBlock(mapping), nil
}

func (d *Device) free(block *hostmem.Block, n devices.Size) error {
	err := block.End(d.errClosed())
	d.blocksMu.Lock()
	defer d.blocksMu.Unlock()
	if _, listed := d.blocks[block]; listed {
		delete(d.blocks, block)
		d.limit.give(roundUp(n))
	}
	return err
}

// mapUnlinked creates a file without a name, allocates its blocks and maps it.
func (d *Device) mapUnlinked(ctx context.Context, n devices.Size) ([]byte, error) {
	fd, err := unix.Openat(int(d.store.root.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("allocate %v of %s: %w: %w", n, d.info.Name, devices.ErrDevice, err)
	}
	// The mapping keeps the file alive.
	defer func() { _ = unix.Close(fd) }()
	for off := devices.Size(0); off < n; off += allocPiece {
		if err = ctx.Err(); err != nil {
			return nil, err
		}
		if err = devices.Fallocate(fd, 0, devices.Offset(off), min(allocPiece, n-off)); err != nil {
			return nil, fmt.Errorf("allocate %v of %s: %w: %w", n, d.info.Name, devices.ErrDevice, err)
		}
	}
	mapping, err := unix.Mmap(fd, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %v of %s: %w: %w", n, d.info.Name, devices.ErrDevice, err)
	}
	if !d.mlock {
		return mapping, nil
	}
	if err := unix.Mlock(mapping); err != nil {
		err = fmt.Errorf("mlock %v of %s: %w: %w; raise RLIMIT_MEMLOCK or omit mlock=true", n, d.info.Name, devices.ErrDevice, err)
		return nil, errors.Join(err, unix.Munmap(mapping))
	}
	return mapping, nil
}
