package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/devices/internal/hostmem"
)

// Device is a simulated device whose memory the host can't map.
type Device struct {
	// self is the device that its memories belong to: this one, or the MappedDevice or
	// PinnedDevice around it.
	self  devices.Device
	info  devices.Info
	epoch atomic.Uint64

	hostToDevice channel
	deviceToHost channel
	inside       channel

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	crashed bool
	// +checklocks:mu
	used devices.Size
	// +checklocks:mu
	blocks map[*hostmem.Block]allocation
}

// allocation is the record of a block.
type allocation struct {
	size devices.Size
	// shared is the memfd of a block that can be exported, otherwise nil.
	shared *os.File
}

// close closes the descriptor; existing mappings of the memory remain.
func (a allocation) close() error {
	if a.shared == nil {
		return nil
	}
	return a.shared.Close()
}

// Info returns the description of the device.
func (d *Device) Info() devices.Info { return d.info }

// Epoch returns the current incarnation; Crash starts the next.
func (d *Device) Epoch() devices.Epoch { return devices.Epoch(d.epoch.Load()) }

// Alloc allocates n bytes, which are zero.
func (d *Device) Alloc(ctx context.Context, n devices.Size) (*devices.Memory, error) {
	return d.alloc(ctx, n, mapAnonymous)
}

// mapper maps n zero bytes; file is their descriptor, if they have one.
type mapper func(n devices.Size) (block *hostmem.Block, file *os.File, err error)

func (d *Device) alloc(ctx context.Context, n devices.Size, memory mapper) (*devices.Memory, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fmt.Errorf("allocation of 0 bytes on %s: %w", d.info.Name, devices.ErrRange)
	}
	epoch, err := d.reserve(n)
	if err != nil {
		return nil, err
	}
	block, file, err := memory(n)
	if err != nil {
		d.unreserve(epoch, n)
		if errors.Is(err, unix.ENOMEM) {
			return nil, d.outOfMemory(n)
		}
		return nil, fmt.Errorf("map %v for %s: %w: %w", n, d.info.Name, devices.ErrDevice, err)
	}
	a := allocation{size: n, shared: file}
	if err := d.adopt(block, a, epoch); err != nil {
		return nil, errors.Join(err, block.End(err), a.close())
	}
	return devices.NewMemory(devices.MemorySpec{
		Device: d.self,
		Size:   n,
		Epoch:  epoch,
		Handle: block,
		Free:   func() error { return d.free(block) },
	}), nil
}

// reserve counts n bytes as used before they are mapped.
func (d *Device) reserve(n devices.Size) (devices.Epoch, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch free := d.info.Total - d.used; {
	case d.closed:
		return 0, d.errClosed()
	case n > free || (d.info.MaxAlloc > 0 && n > d.info.MaxAlloc):
		return 0, &devices.OutOfMemoryError{Device: d.info.Name, Asked: n, Free: free}
	}
	d.used += n
	return d.Epoch(), nil
}

func (d *Device) unreserve(epoch devices.Epoch, n devices.Size) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed && d.Epoch() == epoch {
		d.used -= n
	}
}

// adopt records a block as live, unless its epoch has ended meanwhile.
func (d *Device) adopt(block *hostmem.Block, a allocation, epoch devices.Epoch) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return d.errClosed()
	case d.Epoch() != epoch:
		return d.errLost()
	}
	d.blocks[block] = a
	return nil
}

func (d *Device) free(block *hostmem.Block) error {
	d.mu.Lock()
	// A block that the device has lost is no longer in the map.
	a := d.blocks[block]
	d.used -= a.size
	delete(d.blocks, block)
	d.mu.Unlock()
	return errors.Join(block.End(d.errClosed()), a.close())
}

// mapAnonymous maps private zero pages, huge ones if the kernel supports them.
func mapAnonymous(n devices.Size) (*hostmem.Block, *os.File, error) {
	mapping, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil, err
	}
	// Without huge pages the memory works but is slower to access.
	_ = unix.Madvise(mapping, unix.MADV_HUGEPAGE)
	return hostmem.NewBlock(mapping), nil, nil
}

// CopyIn copies bytes from host to device at the configured speed.
func (d *Device) CopyIn(ctx context.Context, dst devices.Span, src []byte) error {
	return hostmem.CopyIn(ctx, d.self, dst, src, d.hostToDevice.pace())
}

// CopyOut copies bytes from device to host at the configured speed.
func (d *Device) CopyOut(ctx context.Context, dst []byte, src devices.Span) error {
	return hostmem.CopyOut(ctx, d.self, dst, src, d.deviceToHost.pace())
}

// Copy copies bytes within the device at the configured speed.
func (d *Device) Copy(ctx context.Context, dst, src devices.Span) error {
	return hostmem.Copy(ctx, d.self, dst, src, d.inside.pace())
}

// Fill sets bytes at the speed of a copy within the device.
func (d *Device) Fill(ctx context.Context, dst devices.Span, value byte) error {
	return hostmem.Fill(ctx, d.self, dst, value, d.inside.pace())
}

// Reduce combines elements at the speed of a copy within the device.
func (d *Device) Reduce(ctx context.Context, dst, src devices.Span, t elem.Type, op elem.Op) error {
	return hostmem.Reduce(ctx, d.self, hostmem.Reduction{Dst: dst, Src: src, Type: t, Op: op}, d.inside.pace())
}

// Usage returns how much memory is used and free at present.
func (d *Device) Usage() (devices.Usage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return devices.Usage{}, d.errClosed()
	}
	return devices.Usage{Total: d.info.Total, Used: d.used, Free: d.info.Total - d.used}, nil
}

// Crash loses all memory and starts the next epoch. Memories that are still held return
// ErrLost from now on.
func (d *Device) Crash() {
	d.mu.Lock()
	d.crashed = true
	d.epoch.Store(uint64(devices.NextEpoch(d.Epoch())))
	lost := d.takeBlocks()
	d.mu.Unlock()
	for block, a := range lost {
		// The memory is lost either way.
		_, _ = block.End(d.errLost()), a.close()
	}
}

// Close frees everything. A second Close is harmless.
func (d *Device) Close() error {
	d.mu.Lock()
	d.closed = true
	blocks := d.takeBlocks()
	d.mu.Unlock()
	var errs []error
	for block, a := range blocks {
		errs = append(errs, block.End(d.errClosed()), a.close())
	}
	return errors.Join(errs...)
}

// takeBlocks removes and returns all blocks.
//
// +checklocks:d.mu
func (d *Device) takeBlocks() map[*hostmem.Block]allocation {
	blocks := d.blocks
	d.blocks = map[*hostmem.Block]allocation{}
	d.used = 0
	return blocks
}

func (d *Device) outOfMemory(asked devices.Size) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &devices.OutOfMemoryError{Device: d.info.Name, Asked: asked, Free: d.info.Total - d.used}
}

func (d *Device) errClosed() error {
	return fmt.Errorf("%s: %w", d.info.Name, devices.ErrClosed)
}

func (d *Device) errLost() error {
	return fmt.Errorf("%s crashed: %w", d.info.Name, devices.ErrLost)
}

// MappedDevice is a simulated device whose memory the host can map, like a device that
// shares the host's memory.
type MappedDevice struct{ *Device }

// MapHost returns the memory of the span itself; nothing is copied.
func (d *MappedDevice) MapHost(ctx context.Context, s devices.Span, _ devices.Access) (devices.View, error) {
	return hostmem.MapHost(ctx, d, s)
}
