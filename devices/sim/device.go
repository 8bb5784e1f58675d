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

// Device is a simulated device without the ability to be mapped.
type Device struct {
	// self is the device that memories name as theirs: this, or the MappedDevice
	// or PinnedDevice around it.
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
	used devices.Size
	// +checklocks:mu
	blocks map[*hostmem.Block]allocation
}

// allocation is the record of a block.
type allocation struct {
	size devices.Size
	// shared is the memfd of a block that can be exported, else nil.
	shared *os.File
}

// close ends the descriptor; who has mapped the memory keeps it.
func (a allocation) close() error {
	if a.shared == nil {
		return nil
	}
	return a.shared.Close()
}

func newBlocks() map[*hostmem.Block]allocation {
	return map[*hostmem.Block]allocation{}
}

// Info returns the facts.
func (d *Device) Info() devices.Info { return d.info }

// Epoch returns the present incarnation; Crash begins the next.
func (d *Device) Epoch() devices.Epoch { return devices.Epoch(d.epoch.Load()) }

// Alloc takes n bytes, which are zero.
func (d *Device) Alloc(ctx context.Context, n devices.Size) (*devices.Memory, error) {
	return d.alloc(ctx, n, mapAnonymous)
}

// mapper maps n bytes of zeros; file is their descriptor, if they have one.
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

// reserve counts n bytes before they are mapped.
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

// adopt lists a block as live, unless its epoch has ended meanwhile.
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
	// A block that the device has lost is not in the table any more.
	a := d.blocks[block]
	d.used -= a.size
	delete(d.blocks, block)
	d.mu.Unlock()
	return errors.Join(block.End(d.errClosed()), a.close())
}

// mapAnonymous maps private zero pages, huge ones where the kernel has them.
func mapAnonymous(n devices.Size) (*hostmem.Block, *os.File, error) {
	mapping, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil, err
	}
	// Without huge pages the memory is slower to touch, and works.
	_ = unix.Madvise(mapping, unix.MADV_HUGEPAGE)
	return hostmem.NewBlock(mapping), nil, nil
}

// CopyIn moves bytes host to device at the set speed.
func (d *Device) CopyIn(ctx context.Context, dst devices.Span, src []byte) error {
	return hostmem.CopyIn(ctx, d.self, dst, src, d.hostToDevice.pace())
}

// CopyOut moves bytes device to host at the set speed.
func (d *Device) CopyOut(ctx context.Context, dst []byte, src devices.Span) error {
	return hostmem.CopyOut(ctx, d.self, dst, src, d.deviceToHost.pace())
}

// Copy moves bytes inside the device at the set speed.
func (d *Device) Copy(ctx context.Context, dst, src devices.Span) error {
	return hostmem.Copy(ctx, d.self, dst, src, d.inside.pace())
}

// Fill sets bytes at the speed of a copy inside the device.
func (d *Device) Fill(ctx context.Context, dst devices.Span, value byte) error {
	return hostmem.Fill(ctx, d.self, dst, value, d.inside.pace())
}

// Reduce combines elements at the speed of a copy inside the device.
func (d *Device) Reduce(ctx context.Context, dst, src devices.Span, t elem.Type, op elem.Op) error {
	return hostmem.Reduce(ctx, d.self, hostmem.Reduction{Dst: dst, Src: src, Type: t, Op: op}, d.inside.pace())
}

// Usage tells how much memory is used and free now.
func (d *Device) Usage() (devices.Usage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return devices.Usage{}, d.errClosed()
	}
	return devices.Usage{Total: d.info.Total, Used: d.used, Free: d.info.Total - d.used}, nil
}

// Crash loses all memory and begins the next epoch. Memories that are held
// answer ErrLost from now on.
func (d *Device) Crash() {
	d.mu.Lock()
	d.epoch.Store(uint64(devices.NextEpoch(d.Epoch())))
	lost := d.takeBlocks()
	d.mu.Unlock()
	for block, a := range lost {
		// The memory is lost either way.
		_, _ = block.End(d.errLost()), a.close()
	}
}

// Close gives everything back. Closing twice is harmless.
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

// takeBlocks empties the books.
//
// +checklocks:d.mu
func (d *Device) takeBlocks() map[*hostmem.Block]allocation {
	blocks := d.blocks
	d.blocks = newBlocks()
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

// MappedDevice is a simulated device whose memory the host can map, as one
// that shares the host's memory does.
type MappedDevice struct{ *Device }

// MapHost shows the span itself; nothing is copied.
func (d *MappedDevice) MapHost(ctx context.Context, s devices.Span, _ devices.Access) (devices.View, error) {
	return hostmem.MapHost(ctx, d, s)
}

// As returns the simulated device in dev, also where it is mapped or wrapped
// (by something with an Unwrap method); nil where there is none.
func As(dev devices.Device) *Device {
	for {
		switch d := dev.(type) {
		case *Device:
			return d
		case *MappedDevice:
			return d.Device
		case *PinnedDevice:
			return d.Device
		case interface{ Unwrap() devices.Device }:
			dev = d.Unwrap()
		default:
			return nil
		}
	}
}
