package transport

import (
	"os"

	"github.com/hmcfs/hmcfs/devices"
)

// Span is where bytes come from or go to: a part of a device's memory, host
// bytes of the caller, or a part of a file in pinned host memory. The zero
// Span is empty.
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
	remote      Remote
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

// Device names the device that the bytes are on; empty for host bytes of the
// caller.
func (s Span) Device() devices.Name {
	if s.dev.Mem != nil {
		return s.dev.Mem.Device().Info().Name
	}
	return s.name
}
