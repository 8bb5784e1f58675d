package transporttest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// End is one end of a copy: a place in which spans can be created.
type End interface {
	// Make returns a stretch of the place with the given content.
	Make(t testing.TB, content []byte) Stretch
}

// Stretch is a sequence of bytes of an End.
type Stretch interface {
	// Span returns the n bytes from off on.
	Span(t testing.TB, off, n int) transport.Span
	// Read returns all bytes, read without the engine.
	Read(t testing.TB) []byte
}

// HostBytes returns the end for the caller's own bytes.
func HostBytes() End { return hostEnd{} }

type (
	hostEnd     struct{}
	hostStretch []byte
)

// Make copies the content.
func (hostEnd) Make(_ testing.TB, content []byte) Stretch {
	return hostStretch(append([]byte(nil), content...))
}

// Span returns a part of the slice.
func (s hostStretch) Span(_ testing.TB, off, n int) transport.Span {
	return transport.HostSpan(s[off : off+n])
}

// Read returns the slice.
func (s hostStretch) Read(testing.TB) []byte { return s }

// Files returns the end for files below a directory that belong to the device of that name.
func Files(device devices.Name, dir string) End { return fileEnd{device: device, dir: dir} }

// Registrable is like Files, with pages that devices may access directly.
func Registrable(device devices.Name, dir string) End {
	return fileEnd{device: device, dir: dir, registrable: true}
}

type fileEnd struct {
	device      devices.Name
	dir         string
	registrable bool
}

type fileStretch struct {
	fileEnd
	file *os.File
}

// Make writes a new file.
func (e fileEnd) Make(t testing.TB, content []byte) Stretch {
	t.Helper()
	f, err := os.CreateTemp(e.dir, filepath.Base(t.Name())+"-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	})
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	return fileStretch{fileEnd: e, file: f}
}

// Span returns a part of the file.
func (s fileStretch) Span(_ testing.TB, off, n int) transport.Span {
	span := transport.FileSpan(s.device, s.file, int64(off), devices.Size(n))
	if s.registrable {
		return span.Registrable()
	}
	return span
}

// Read reads the whole file.
func (s fileStretch) Read(t testing.TB) []byte {
	t.Helper()
	p, err := os.ReadFile(s.file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Device returns the end for a device's memory.
func Device(d devices.Device) End { return deviceEnd{d} }

type deviceEnd struct{ device devices.Device }

type deviceStretch struct{ mem *devices.Memory }

// Make allocates memory and copies the content in.
func (e deviceEnd) Make(t testing.TB, content []byte) Stretch {
	t.Helper()
	// An allocation has at least one byte, while a content may be empty.
	m, err := e.device.Alloc(context.Background(), devices.Size(max(len(content), 1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Release(); err != nil {
			t.Error(err)
		}
	})
	if len(content) > 0 {
		if err := e.device.CopyIn(context.Background(), m.All(), content); err != nil {
			t.Fatal(err)
		}
	}
	return deviceStretch{m}
}

// Span returns a part of the allocation.
func (s deviceStretch) Span(t testing.TB, off, n int) transport.Span {
	t.Helper()
	d, err := s.mem.Span(devices.Range{Off: devices.Offset(off), Len: devices.Size(n)})
	if err != nil {
		t.Fatal(err)
	}
	return transport.DeviceSpan(d)
}

// Read copies the bytes out of the memory.
func (s deviceStretch) Read(t testing.TB) []byte {
	t.Helper()
	p := make([]byte, s.mem.Size())
	if err := s.mem.Device().CopyOut(context.Background(), p, s.mem.All()); err != nil {
		t.Fatal(err)
	}
	return p
}
