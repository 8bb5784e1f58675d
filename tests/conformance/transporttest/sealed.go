package transporttest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

// Sealed returns the end for memory of another process that cannot shrink, of the device of that
// name. Each stretch is mapped twice, as memory that two sessions have registered, and its spans
// are of both mappings in turn.
func Sealed(device devices.Name) End { return sealedEnd{device, &transport.Mappings{}} }

type sealedEnd struct {
	device devices.Name
	maps   *transport.Mappings
}

type sealedStretch struct {
	sealedEnd
	file  *os.File
	maps  [2]*transport.Mapping
	turns *int
}

// SealedFile makes a file in memory that has the content and can't change its size.
func SealedFile(t testing.TB, content []byte) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("hmcfs-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "memfd:hmcfs-test")
	t.Cleanup(func() { _ = f.Close() })
	if _, err = f.WriteAt(content, 0); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Make makes a file in memory. One byte more than the content keeps an empty one mappable.
func (e sealedEnd) Make(t testing.TB, content []byte) Stretch {
	t.Helper()
	s := sealedStretch{sealedEnd: e, file: SealedFile(t, append(append([]byte(nil), content...), 0)), turns: new(int)}
	for i := range s.maps {
		m, err := e.maps.Map(s.file, devices.Size(len(content)+1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := m.Release(); err != nil {
				t.Error(err)
			}
		})
		s.maps[i] = m
	}
	return s
}

// Span returns a part of the file, of the one or the other mapping.
func (s sealedStretch) Span(_ testing.TB, off, n int) transport.Span {
	*s.turns++
	return transport.MappedSpan(s.device, s.maps[*s.turns%len(s.maps)], int64(off), devices.Size(n))
}

// Read reads the file.
func (s sealedStretch) Read(t testing.TB) []byte {
	t.Helper()
	info, err := s.file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, info.Size()-1)
	if _, err = s.file.ReadAt(p, 0); err != nil && len(p) > 0 {
		t.Fatal(err)
	}
	return p
}
