package transport

import (
	"fmt"
	"os"

	"github.com/hmcfs/hmcfs/devices"
)

// Span is a source or destination of bytes: a part of a device's memory, host
// bytes of the caller, a part of a file in pinned host memory, or memory of
// another process or machine. The zero Span is empty.
//
// A Span borrows: its maker keeps the memory, the slice or the file alive until
// the copy has ended.
type Span struct {
	dev  devices.Span
	host []byte
	file *os.File
	// mapped is the mapping of file; nil for none.
	mapped *Mapping
	name   devices.Name
	off    int64
	n      devices.Size
	// registrable allows devices to access the file's own pages.
	registrable bool
	// remote is nil for memory of this process.
	remote    Remote
	remoteOff devices.Offset
}

// DeviceSpan returns the span of a part of device memory.
func DeviceSpan(s devices.Span) Span { return Span{dev: s, n: s.Len} }

// HostSpan returns the span of the caller's own bytes.
func HostSpan(p []byte) Span { return Span{host: p, n: devices.Size(len(p))} }

// FileSpan returns the span of n bytes, from off, of a file of a device's
// FileTier. A hole reads as zeros; writing past the end grows the file.
func FileSpan(device devices.Name, f *os.File, off int64, n devices.Size) Span {
	return Span{file: f, name: device, off: off, n: n}
}

// Len returns the length in bytes.
func (s Span) Len() devices.Size { return s.n }

// Place describes the memory of a span, for its registration: host bytes, unless
// one of the other fields is set.
type Place struct {
	Host []byte
	// Device is device memory; its Mem is nil for every other kind of memory.
	Device devices.Span
	// File is a file of the device Name, and Off the position at which the span
	// begins in it.
	File *os.File
	Name devices.Name
	Off  int64
	// Remote is memory of another process or machine.
	Remote Remote
}

// Place returns the memory of the span.
func (s Span) Place() Place {
	return Place{Host: s.host, Device: s.dev, File: s.file, Name: s.name, Off: s.off, Remote: s.remote}
}

// IsRemote reports whether the bytes are outside the memory of this process: they
// move at the speed of a network, and fail with it.
func (s Span) IsRemote() bool { return s.remote != nil }

// Device returns the name of the device that holds the bytes; it is empty for
// host bytes of the caller, and for remote memory.
func (s Span) Device() devices.Name { return s.device() }

func (s *Span) device() devices.Name {
	if s.dev.Mem != nil {
		return s.dev.Mem.Device().Info().Name
	}
	return s.name
}

// kind is the kind of a span's memory.
type kind int

const (
	kindHost kind = iota
	kindFile
	kindDevice
	kindRemote
)

func (s *Span) kind() kind {
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
func (s *Span) check() error {
	switch s.kind() {
	case kindDevice:
		return s.dev.Check(s.dev.Mem.Device())
	case kindFile:
		r := devices.Range{Off: devices.Offset(s.off), Len: s.n}
		if s.off < 0 || !r.WellFormed() || s.mapped != nil && !r.Within(devices.Size(len(s.mapped.bytes))) {
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

// Part returns the n bytes of the span from off.
func (s Span) Part(off devices.Offset, n devices.Size) (Span, error) {
	if r := (devices.Range{Off: off, Len: n}); !r.Within(s.n) {
		return Span{}, fmt.Errorf("range %v exceeds a span of %d bytes: %w", r, uint64(s.n), devices.ErrRange)
	}
	return s.sub(devices.Size(off), n), nil
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
