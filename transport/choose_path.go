package transport

import (
	"cmp"
	"context"
)

// route determines the path of a copy, and the device for which it is counted,
// from the kinds of the two ends, as the table in doc.go shows; the optional
// abilities of a device are tried when bytes move. The path is the expected one
// for copies that report another after they have moved the bytes.
func route(dst, src *Span) CopyInfo {
	to, from := dst.device(), src.device()
	info := CopyInfo{Path: PathMapped, Device: to, Peer: from, Bytes: dst.n}
	switch {
	case dst.IsRemote() || src.IsRemote():
		// The remote end reports the path; TCP, which is always available, is
		// assumed until then.
		info.Path, info.Device, info.Peer = PathTCP, cmp.Or(to, from), ""
	case dst.kind() > src.kind():
		info.Path = PathH2D
	case dst.kind() < src.kind():
		info.Path, info.Device, info.Peer = PathD2H, from, to
	case dst.kind() == kindHost:
	case together(dst, src):
		info.Path = PathD2D
	default:
		info.Path = PathStaged
	}
	return info
}

// together reports whether two spans of the same kind are on one device.
func together(dst, src *Span) bool {
	if dst.kind() == kindDevice {
		return dst.dev.Mem.Device() == src.dev.Mem.Device()
	}
	return dst.name == src.name
}

// ready checks the context and the spans of a copy.
func ready(ctx context.Context, spans ...*Span) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, s := range spans {
		if err := s.check(); err != nil {
			return err
		}
	}
	return nil
}

// move moves every byte of a non-empty span, and returns the path: the expected
// one, unless the bytes have taken another.
func (e *Engine) move(ctx context.Context, expected Path, dst, src *Span) (Path, error) {
	switch to, from := dst.kind(), src.kind(); {
	case to == kindRemote || from == kindRemote:
		return withRemote(ctx, *dst, *src)
	case to != kindDevice && from != kindDevice:
		return expected, e.onHost(ctx, dst, src)
	case to != from:
		return expected, e.overBus(ctx, *dst, *src)
	case together(dst, src):
		return expected, dst.dev.Mem.Device().Copy(ctx, dst.dev, src.dev)
	}
	return e.acrossDevices(ctx, *dst, *src)
}
