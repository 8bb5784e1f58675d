package host

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/devices/internal/hostmem"
	"github.com/hmcfs/hmcfs/devices/internal/life"
)

// Mode is the way in which the tier is stored.
type Mode string

// The modes.
const (
	// ModeTmpfs is a private tmpfs, whose files the kernel can serve.
	ModeTmpfs Mode = "tmpfs"
	// ModeQuota is a directory in shared memory; Reserve must be called before a file
	// grows.
	ModeQuota Mode = "quota"
)

// limit counts the tier's bytes.
type limit interface {
	usage() (devices.Usage, error)
	// take counts n bytes for an allocation, give subtracts them.
	take(n devices.Size) error
	give(n devices.Size)
	// reserve requests n bytes for a file; removed reports that a file of n bytes was
	// removed.
	reserve(n devices.Size) error
	removed(n devices.Size)
	// admit counts one more file, if the limit allows it, and dismiss one less.
	admit() error
	dismiss()
	// destroy removes the tier, whose store must be closed.
	destroy() error
}

// Device is the host's memory.
type Device struct {
	info  devices.Info
	store *store
	mode  Mode
	why   string
	limit limit
	mlock bool

	// life is held for reading by every operation that uses the store, and for writing to
	// close it.
	life life.Life

	blocksMu sync.Mutex
	// +checklocks:blocksMu
	blocks map[*hostmem.Block]struct{}
}

// newDevice returns the device of a store whose limit is total bytes.
func newDevice(s *store, mode Mode, why string, l limit, total devices.Size) *Device {
	return &Device{
		info: info(total), store: s, mode: mode, why: why, limit: l, blocks: map[*hostmem.Block]struct{}{},
	}
}

// Mode returns the way in which the tier is stored.
func (d *Device) Mode() Mode { return d.mode }

// Why returns the reason for the mode, for people.
func (d *Device) Why() string { return d.why }

// Path returns the directory of the tier.
func (d *Device) Path() string { return d.store.path }

// Info returns the description of the device.
func (d *Device) Info() devices.Info { return d.info }

// Epoch returns the incarnation of the files: an adopted tier keeps its epoch.
func (d *Device) Epoch() devices.Epoch { return d.store.epoch }

// Files returns the files of the tier.
func (d *Device) Files() devices.Files { return files{d} }

// enter keeps the store open until leave is called.
func (d *Device) enter() (leave func(), err error) { return d.life.Enter(context.Background(), d) }

// Usage returns how much memory is used and free at present. In mode quota it examines
// every file.
func (d *Device) Usage() (devices.Usage, error) {
	leave, err := d.enter()
	if err != nil {
		return devices.Usage{}, err
	}
	defer leave()
	return d.limit.usage()
}

// CopyIn copies bytes into the memory.
func (d *Device) CopyIn(ctx context.Context, dst devices.Span, src []byte) error {
	return hostmem.CopyIn(ctx, d, dst, src, nil)
}

// CopyOut copies bytes out of the memory.
func (d *Device) CopyOut(ctx context.Context, dst []byte, src devices.Span) error {
	return hostmem.CopyOut(ctx, d, dst, src, nil)
}

// Copy copies bytes within the memory.
func (d *Device) Copy(ctx context.Context, dst, src devices.Span) error {
	return hostmem.Copy(ctx, d, dst, src, nil)
}

// Fill sets bytes of the memory.
func (d *Device) Fill(ctx context.Context, dst devices.Span, value byte) error {
	return hostmem.Fill(ctx, d, dst, value, nil)
}

// Reduce combines elements in the memory.
func (d *Device) Reduce(ctx context.Context, dst, src devices.Span, t elem.Type, op elem.Op) error {
	return hostmem.Reduce(ctx, d, hostmem.Reduction{Dst: dst, Src: src, Type: t, Op: op}, nil)
}

// MapHost returns the memory itself; nothing is copied.
func (d *Device) MapHost(ctx context.Context, s devices.Span, _ devices.Access) (devices.View, error) {
	return hostmem.MapHost(ctx, d, s)
}

// PinHost locks p into memory, as far as RLIMIT_MEMLOCK allows. Whole pages are locked:
// unpinning one of two adjacent ranges may unlock the page that both share.
func (d *Device) PinHost(p []byte) (unpin func(), err error) {
	if len(p) == 0 {
		return func() {}, nil
	}
	if err := unix.Mlock(p); err != nil {
		return nil, fmt.Errorf("lock %v of memory: %w", devices.Size(len(p)), err)
	}
	return sync.OnceFunc(func() { _ = unix.Munlock(p) }), nil
}

// Close ends all allocations and leaves the files for the next Open. A second Close is
// harmless.
func (d *Device) Close() error {
	return d.life.Close(func() error {
		d.blocksMu.Lock()
		defer d.blocksMu.Unlock()
		var errs []error
		for block := range d.blocks {
			errs = append(errs, block.End(d.errClosed()))
		}
		clear(d.blocks)
		return errors.Join(append(errs, d.store.close())...)
	})
}

// Destroy closes the device and removes the tier with all files, as a clean unmount does
// unless the files are to be kept.
func (d *Device) Destroy() error {
	return errors.Join(d.Close(), d.limit.destroy())
}

func (d *Device) errClosed() error {
	return fmt.Errorf("%s: %w", d.info.Name, devices.ErrClosed)
}

// outOfMemory returns an error with the current usage. The store must be open.
func (d *Device) outOfMemory(asked devices.Size) error {
	u, err := d.limit.usage()
	if err != nil {
		return err
	}
	return &devices.OutOfMemoryError{Device: d.info.Name, Asked: asked, Free: u.Free}
}
