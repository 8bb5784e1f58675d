package transport

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// kind is the kind of a span's memory.
type kind int

const (
	kindHost kind = iota
	kindFile
	kindDevice
	kindRemote
)

func (s Span) kind() kind {
	switch {
	case s.remote != nil:
		return kindRemote
	case s.dev.Mem != nil:
		return kindDevice
	case s.file != nil:
		return kindFile
	}
	return kindHost
}

// check reports whether the span may be used now.
func (s Span) check() error {
	switch s.kind() {
	case kindDevice:
		return s.dev.Check(s.dev.Mem.Device())
	case kindFile:
		r := devices.Range{Off: devices.Offset(s.off), Len: s.n}
		if s.off < 0 || !r.WellFormed() {
			return fmt.Errorf("invalid range of a file: %d bytes from %d: %w", uint64(s.n), s.off, devices.ErrRange)
		}
	case kindRemote:
		if r := (devices.Range{Off: s.remoteOff, Len: s.n}); !r.WellFormed() {
			return fmt.Errorf("invalid range of remote memory: %d bytes from %d: %w", uint64(s.n), uint64(s.remoteOff), devices.ErrRange)
		}
	case kindHost:
		if s.n != devices.Size(len(s.host)) {
			return fmt.Errorf("span of %d bytes without matching memory: %w", uint64(s.n), devices.ErrRange)
		}
	}
	return nil
}

// end names this end of a copy, for messages.
func (s Span) end() string {
	switch s.kind() {
	case kindRemote:
		return "remote memory"
	case kindDevice:
		return string(s.Device())
	case kindFile:
		return "a file of " + string(s.name)
	case kindHost:
	}
	return "host memory"
}

// sub returns the n bytes from off. The caller stays inside the span.
func (s Span) sub(off, n devices.Size) Span {
	switch s.kind() {
	case kindDevice:
		s.dev.Off += devices.Offset(off)
		s.dev.Len = n
	case kindFile:
		s.off += int64(off)
	case kindRemote:
		s.remoteOff += devices.Offset(off)
	case kindHost:
		s.host = s.host[off : off+n]
	}
	s.n = n
	return s
}

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
