package opencl

import (
	"context"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/moves"
)

// mappedDevice is a device whose memory is the host's own: it maps it without a copy, and
// lets the host do the work that the host can do. doc.go describes the rules by which host
// and device share a buffer.
type mappedDevice struct {
	*device
}

var (
	_ devices.Device     = (*mappedDevice)(nil)
	_ devices.HostMapper = (*mappedDevice)(nil)
	_ devices.Device     = (*device)(nil)
)

// MapHost maps the span. The view keeps the memory alive until it is released.
func (d *mappedDevice) MapHost(ctx context.Context, s devices.Span, _ devices.Access) (devices.View, error) {
	leave, err := d.life.Begin(ctx, d.self, s, int(s.Len))
	if err != nil {
		return devices.View{}, err
	}
	defer leave()
	b := d.buffer(s)
	if err := d.hold(ctx, b); err != nil {
		return devices.View{}, err
	}
	s.Mem.Retain()
	release := func() {
		d.release(b)
		d.releaseMemory(s.Mem)
	}
	return devices.View{Bytes: b.bytes(s.Range), Release: sync.OnceFunc(release)}, nil
}

// CopyIn copies bytes from host to device through the map.
func (d *mappedDevice) CopyIn(ctx context.Context, dst devices.Span, src []byte) error {
	return d.transfer(ctx, dst, src, func(mapped, host []byte) { copy(mapped, host) })
}

// CopyOut copies bytes from device to host through the map.
func (d *mappedDevice) CopyOut(ctx context.Context, dst []byte, src devices.Span) error {
	return d.transfer(ctx, src, dst, func(mapped, host []byte) { copy(host, mapped) })
}

// transfer copies between a span and host memory; move copies one piece.
func (d *mappedDevice) transfer(ctx context.Context, s devices.Span, host []byte, move func(mapped, host []byte)) error {
	leave, err := d.life.Begin(ctx, d.self, s, len(host))
	if err != nil {
		return err
	}
	defer leave()
	b := d.buffer(s)
	if err := d.hold(ctx, b); err != nil {
		return err
	}
	defer d.release(b)
	mapped := b.bytes(s.Range)
	return moves.Pieces(ctx, s.Len, moves.HostPiece, func(off, n devices.Size) error {
		move(mapped[off:off+n], host[off:off+n])
		return nil
	})
}

// Copy copies bytes within the device, piece by piece: by a command of the device while the
// host uses neither buffer, otherwise by the host through the maps. The host always copies
// overlapping ranges, and does all work of a device that is the host's processor.
func (d *mappedDevice) Copy(ctx context.Context, dst, src devices.Span) error {
	leave, err := d.life.BeginCopy(ctx, d.self, dst, src)
	if err != nil {
		return err
	}
	defer leave()
	to, from := d.buffer(dst), d.buffer(src)
	overlap := to == from && dst.Overlaps(src.Range)
	up := overlap && dst.Off > src.Off
	return moves.Pieces(ctx, src.Len, sharedPiece, func(off, n devices.Size) error {
		if up {
			off = src.Len - off - n
		}
		dstPart := devices.Range{Off: dst.Off + devices.Offset(off), Len: n}
		srcPart := devices.Range{Off: src.Off + devices.Offset(off), Len: n}
		command := func() error {
			return d.api.copy(d.within, place{to.mem, uint64(dstPart.Off)}, place{from.mem, uint64(srcPart.Off)}, uint64(n))
		}
		if overlap {
			command = nil
		}
		host := func() error {
			copy(to.bytes(dstPart), from.bytes(srcPart))
			return nil
		}
		return d.either(ctx, command, host, to, from)
	})
}

// Fill sets every byte of the span, by the device or by the host, as Copy does.
func (d *mappedDevice) Fill(ctx context.Context, dst devices.Span, value byte) error {
	leave, err := d.life.Begin(ctx, d.self, dst, int(dst.Len))
	if err != nil {
		return err
	}
	defer leave()
	b := d.buffer(dst)
	return moves.Pieces(ctx, dst.Len, sharedPiece, func(off, n devices.Size) error {
		part := devices.Range{Off: dst.Off + devices.Offset(off), Len: n}
		command := func() error {
			return d.fillCommands(ctx, place{b.mem, uint64(part.Off)}, n, value)
		}
		host := func() error {
			setAll(b.bytes(part), value)
			return nil
		}
		return d.either(ctx, command, host, b)
	})
}

// either does a piece of work by a command of the device if the host uses none of the
// buffers, otherwise by the host. A nil command means that only the host may do it.
func (d *mappedDevice) either(ctx context.Context, command, host func() error, bufs ...*buffer) error {
	if command != nil && !d.entry.isHost() && d.gate.tryCommand(bufs...) {
		defer func() { d.destroyLast(d.gate.leaveCommand(bufs...)) }()
		for _, b := range bufs {
			if err := d.unmap(b); err != nil {
				return err
			}
		}
		return command()
	}
	if err := d.hold(ctx, bufs...); err != nil {
		return err
	}
	defer d.release(bufs...)
	return host()
}

// hold makes the caller a host user of the buffers and maps them; release undoes that.
func (d *device) hold(ctx context.Context, bufs ...*buffer) error {
	if err := d.gate.enterHost(ctx, bufs...); err != nil {
		return err
	}
	for _, b := range bufs {
		if err := d.mapWhole(b); err != nil {
			d.release(bufs...)
			return err
		}
	}
	return nil
}

func (d *device) release(bufs ...*buffer) { d.destroyLast(d.gate.leaveHost(bufs...)) }
