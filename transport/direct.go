package transport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/descriptor"
)

// directWorkers is the number of pieces of one direct copy in progress: while the
// device copies one, the next ones are started, checked or registered.
const directWorkers = 4

// Registrable returns the span with permission for devices to access the file's
// own pages, and to keep them registered between copies. Its maker may take pages
// from the file, by truncation or by a hole, only under Engine.Withdraw.
func (s Span) Registrable() Span {
	s.registrable = s.file != nil
	return s
}

// direct is one copy between a file's own pages and a device.
type direct struct {
	pieces

	e        *Engine
	dst, src Span
	want     want
	// size is the length of the file at the start.
	size uint64
	// wrote is true if the device wrote pages of the file.
	wrote atomic.Bool
}

// ownPages copies between a file and a device that can't be mapped: directly with
// the file's own pages if they may be registered and the copy is large enough,
// otherwise through slots.
func (e *Engine) ownPages(ctx context.Context, dst, src Span) error {
	file, dev := src, dst
	if dst.kind() == kindFile {
		file, dev = dst, src
	}
	device := dev.dev.Mem.Device()
	_, pins := device.(devices.Pinner)
	if e.regions == nil || !file.registrable || !pins || file.n < e.opts.RegisterFrom {
		return e.staged(ctx, dst, src)
	}
	st, err := statOf(file.file)
	if err != nil {
		return err
	}
	d := &direct{e: e, dst: dst, src: src, size: uint64(st.Size), want: want{
		device: device, file: file.file, id: FileIDOf(st),
		off: uint64(file.off), n: file.n, into: dst.kind() == kindFile,
	}}
	// The boundaries of pieces are multiples of a region's size in the file.
	d.count = (d.want.end()-1)/uint64(regionSize) - d.want.off/uint64(regionSize) + 1
	anywhere := func() func() { return func() {} }
	err = d.move(ctx, int(min(d.count, directWorkers)), anywhere, d)
	if d.wrote.Load() {
		err = errors.Join(err, written(file.file))
	}
	return err
}

func (d *direct) movePiece(ctx context.Context, _ int, number uint64) error {
	from := (d.want.off/uint64(regionSize) + number) * uint64(regionSize)
	return d.moveRange(ctx, max(d.want.off, from), min(d.want.end(), from+uint64(regionSize)))
}

// moveRange moves [from, to) of the file.
func (d *direct) moveRange(ctx context.Context, from, to uint64) error {
	if d.want.into && to > d.size {
		// A device's write does not extend the file. If there is no room for it,
		// the slots fill what there is, and return the error.
		if allocate(d.want.file, from, devices.Size(to-from)) != nil {
			return d.throughSlots(ctx, from, devices.Size(to-from))
		}
	}
	for from < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		w := d.want
		w.off, w.n = from, devices.Size(to-from)
		g, n := d.e.regions.lease(ctx, w)
		moved, err := false, error(nil)
		if g != nil {
			moved, err = d.byDevice(ctx, g, from, n)
			d.e.regions.leave(g)
		}
		if !moved && err == nil {
			err = d.throughSlots(ctx, from, n)
		}
		if err != nil {
			return err
		}
		from += uint64(n)
	}
	return nil
}

// byDevice has the device copy n bytes. moved is false without an error if the
// pages were needed back meanwhile.
func (d *direct) byDevice(ctx context.Context, g *region, off uint64, n devices.Size) (moved bool, err error) {
	part, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(g.revoked, cancel) //nolint:contextcheck // the region's end is independent of this call
	defer stop()
	at := devices.Size(off - d.want.off)
	if d.want.into {
		d.wrote.Store(true)
		err = copyOut(part, g.bytes(off, n), d.src.sub(at, n))
	} else {
		err = copyIn(part, d.dst.sub(at, n), g.bytes(off, n))
	}
	if err != nil && g.revoked.Err() != nil && ctx.Err() == nil {
		return false, nil
	}
	if err == nil {
		d.e.regions.counts.bytes.Add(uint64(n))
	}
	return err == nil, err
}

func (d *direct) throughSlots(ctx context.Context, off uint64, n devices.Size) error {
	at := devices.Size(off - d.want.off)
	return d.e.staged(ctx, d.dst.sub(at, n), d.src.sub(at, n))
}

// written sets the file's times as a write does: the kernel does not see a
// device's writes to the pages.
func written(f *os.File) error {
	now := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_NOW}}
	err := descriptor.UsePath(f, func(path string) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, path, now, 0)
	})
	if err != nil {
		return fmt.Errorf("set the times of a file written by a device: %w", err)
	}
	return nil
}
