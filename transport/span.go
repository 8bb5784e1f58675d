package transport

import (
	"os"

	"github.com/hmcfs/hmcfs/devices"
)

// Span is a source or target of bytes: a part of a device's memory, host
// bytes of the caller, a part of a file in pinned host memory, or memory of
// another process or machine. The zero Span is empty.
//
// A Span borrows: whoever makes it keeps the memory, the slice or the file
// alive until the copy has ended.
type Span struct {
	dev  devices.Span
	host []byte
	file *os.File
	name devices.Name
	off  int64
	n    devices.Size
	// registrable says that devices may reach the file's own pages.
	registrable bool
	// remote is nil for memory of this process.
	remote    Remote
	remoteOff devices.Offset
}

// DeviceSpan is a part of device memory.
func DeviceSpan(s devices.Span) Span { return Span{dev: s, n: s.Len} }

// HostSpan is the caller's own bytes.
func HostSpan(p []byte) Span { return Span{host: p, n: devices.Size(len(p))} }

// FileSpan is n bytes of a file of a device's FileTier, from off. A hole
// reads as zeros; writing behind the end grows the file.
func FileSpan(device devices.Name, f *os.File, off int64, n devices.Size) Span {
	return Span{file: f, name: device, off: off, n: n}
}

// Len is the length in bytes.
func (s Span) Len() devices.Size { return s.n }

// Place is the memory of a span, for its registration: host bytes, unless
// one of the others is set.
type Place struct {
	Host []byte
	// Device is device memory; its Mem is nil for all other.
	Device devices.Span
	// File is a file of the device Name, and Off where the span begins in it.
	File *os.File
	Name devices.Name
	Off  int64
	// Remote is memory that is not of this process.
	Remote Remote
}

// Place tells what the span is made of.
func (s Span) Place() Place {
	return Place{Host: s.host, Device: s.dev, File: s.file, Name: s.name, Off: s.off, Remote: s.remote}
}

// IsRemote says that the bytes are not in memory of this process: they come and
// go as fast as a network, and fail with it.
func (s Span) IsRemote() bool { return s.remote != nil }

// Device names the device that the bytes are on; empty for host bytes of the
// caller, and for remote memory.
func (s Span) Device() devices.Name {
	if s.dev.Mem != nil {
		return s.dev.Mem.Device().Info().Name
	}
	return s.name
}
