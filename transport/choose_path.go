package transport

import (
	"cmp"
	"context"

	"github.com/hmcfs/hmcfs/devices"
)

// mover moves every byte of a non-empty span.
type mover func(ctx context.Context, dst, src Span) error

// route determines how a copy is performed and the device for which it is
// counted.
type route struct {
	// path is the path of move. With ask it is the expected path, for a copy that
	// fails before its path is known.
	path         Path
	device, peer devices.Name
	// move is set if the path is known beforehand. Otherwise ask chooses a path,
	// moves the bytes along it, and reports it.
	move mover
	ask  func(ctx context.Context, dst, src Span) (Path, error)
}

// run checks the spans and moves the bytes, if there are any.
func (r route) run(ctx context.Context, dst, src Span) (Path, error) {
	if err := ctx.Err(); err != nil {
		return r.path, err
	}
	if err := src.check(); err != nil {
		return r.path, err
	}
	if err := dst.check(); err != nil {
		return r.path, err
	}
	if dst.n == 0 {
		return r.path, nil
	}
	if r.move == nil {
		return r.ask(ctx, dst, src)
	}
	return r.path, r.move(ctx, dst, src)
}

// route picks the path from the kinds of the two ends, as the table in doc.go
// shows; the optional abilities of a device are tried when bytes move.
func (e *Engine) route(dst, src Span) route {
	type ends struct{ dst, src kind }
	to, from := dst.Device(), src.Device()
	if dst.kind() == kindRemote || src.kind() == kindRemote {
		// The remote end reports the path; TCP, which is always available, is
		// assumed until then.
		return route{PathTCP, cmp.Or(to, from), "", nil, withRemote}
	}
	switch (ends{dst.kind(), src.kind()}) {
	case ends{kindDevice, kindHost}:
		return route{PathH2D, to, "", hostToDevice, nil}
	case ends{kindHost, kindDevice}:
		return route{PathD2H, from, "", deviceToHost, nil}
	case ends{kindDevice, kindDevice}:
		if dst.dev.Mem.Device() == src.dev.Mem.Device() {
			return route{PathD2D, to, from, withinDevice, nil}
		}
		return route{PathStaged, to, from, nil, e.acrossDevices}
	case ends{kindDevice, kindFile}:
		return route{PathH2D, to, from, e.fileToDevice, nil}
	case ends{kindFile, kindDevice}:
		return route{PathD2H, from, to, e.deviceToFile, nil}
	case ends{kindFile, kindHost}:
		return route{PathH2D, to, "", hostToFile, nil}
	case ends{kindHost, kindFile}:
		return route{PathD2H, from, "", fileToHost, nil}
	case ends{kindFile, kindFile}:
		if to == from {
			return route{PathD2D, to, from, e.fileToFile, nil}
		}
		return route{PathStaged, to, from, e.fileToFile, nil}
	}
	return route{PathMapped, to, from, hostToHost, nil}
}
