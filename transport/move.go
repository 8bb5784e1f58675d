package transport

import (
	"context"
	"errors"

	"github.com/hmcfs/hmcfs/devices"
)

// piece is the number of bytes that the host's processor moves between two checks
// of the context: long enough to cost nothing, short enough for an interrupt to
// take effect within milliseconds.
const piece = 4 * devices.MiB

// walker calls fn for one piece of n bytes after another, each of at most size bytes.
type walker func(ctx context.Context, n, size devices.Size, fn func(off, n devices.Size) error) error

// inPieces calls fn for one piece of n bytes after another.
func inPieces(ctx context.Context, n, size devices.Size, fn func(off, n devices.Size) error) error {
	for off := devices.Size(0); off < n; off += size {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(off, min(size, n-off)); err != nil {
			return err
		}
	}
	return nil
}

// inPiecesBackward is inPieces from the end to the start.
func inPiecesBackward(ctx context.Context, n, size devices.Size, fn func(off, n devices.Size) error) error {
	for end := n; end > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		length := min(size, end)
		end -= length
		if err := fn(end, length); err != nil {
			return err
		}
	}
	return nil
}

// moveBytes is memmove that checks the context between two pieces.
func moveBytes(ctx context.Context, dst, src []byte) error {
	if len(src) <= int(piece) {
		copy(dst, src)
		return ctx.Err()
	}
	walk := inPieces
	if startsInside(dst, src) {
		walk = inPiecesBackward
	}
	return walk(ctx, devices.Size(len(src)), piece, func(off, n devices.Size) error {
		copy(dst[off:off+n], src[off:off+n])
		return nil
	})
}

// onHost copies between host bytes and files.
func (e *Engine) onHost(ctx context.Context, dst, src *Span) error {
	to, from := dst.inMemory(), src.inMemory()
	if dst.file != nil && src.file != nil && (to == nil || dst.mapped != src.mapped) {
		switch overlap, err := overlapping(dst, src); {
		case err != nil:
			return err
		case overlap:
			return e.withinFile(ctx, *dst, *src)
		}
	}
	switch {
	case to == nil && from == nil:
		return e.fileToFile(ctx, *dst, *src)
	case to == nil:
		return hostToFile(ctx, *dst, from)
	case from == nil:
		return fileToHost(ctx, to, *src)
	}
	return moveBytes(ctx, to, from)
}

// overBus copies between a device and host bytes or a file: through a map of the
// device's memory, if there is one.
func (e *Engine) overBus(ctx context.Context, dst, src Span) error {
	device, access := dst, devices.ReadWrite
	if src.kind() == kindDevice {
		device, access = src, devices.ReadOnly
	}
	view, ok, err := devices.TryMapHost(ctx, device.dev, access)
	switch {
	case err != nil:
		return err
	case ok:
		defer view.Release()
		if access == devices.ReadWrite {
			dst = HostSpan(view.Bytes)
		} else {
			src = HostSpan(view.Bytes)
		}
		return e.onHost(ctx, &dst, &src)
	case dst.kind() == kindFile || src.kind() == kindFile:
		return e.ownPages(ctx, dst, src)
	case dst.kind() == kindDevice:
		return copyIn(ctx, dst, src.host)
	}
	return copyOut(ctx, dst.host, src)
}

// acrossDevices tries the paths between two devices, the shortest first.
func (e *Engine) acrossDevices(ctx context.Context, dst, src Span) (Path, error) {
	err := devices.CopyPeer(ctx, dst.dev, src.dev)
	if !errors.Is(err, devices.ErrUnsupported) {
		return PathPeer, err
	}
	from, fromMaps, err := devices.TryMapHost(ctx, src.dev, devices.ReadOnly)
	if err != nil {
		return PathMapped, err
	}
	if fromMaps {
		defer from.Release()
	}
	to, toMaps, err := devices.TryMapHost(ctx, dst.dev, devices.ReadWrite)
	if err != nil {
		return PathMapped, err
	}
	if toMaps {
		defer to.Release()
	}
	switch {
	case fromMaps && toMaps:
		return PathMapped, moveBytes(ctx, to.Bytes, from.Bytes)
	case toMaps:
		return PathMapped, inPieces(ctx, src.n, piece, func(off, n devices.Size) error {
			return copyOut(ctx, to.Bytes[off:off+n], src.sub(off, n))
		})
	case fromMaps:
		return PathMapped, inPieces(ctx, dst.n, piece, func(off, n devices.Size) error {
			return copyIn(ctx, dst.sub(off, n), from.Bytes[off:off+n])
		})
	}
	return PathStaged, e.staged(ctx, dst, src)
}

func copyIn(ctx context.Context, dst Span, src []byte) error {
	return dst.dev.Mem.Device().CopyIn(ctx, dst.dev, src)
}

func copyOut(ctx context.Context, dst []byte, src Span) error {
	return src.dev.Mem.Device().CopyOut(ctx, dst, src.dev)
}
