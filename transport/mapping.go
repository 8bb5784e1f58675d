package transport

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/descriptor"
)

// Mapping is the first part of a file in memory that the kernel keeps from shrinking
// (F_SEAL_SHRINK), mapped into this process: its bytes are copied without a system call.
// A file that can shrink is never mapped, since its owner could make the daemon fail
// (SIGBUS).
type Mapping struct {
	file     *os.File
	bytes    []byte
	dev, ino uint64
}

// MapFile maps the first n bytes of a file, which stays the caller's and must be open for
// reading and writing until Release.
//
// Errors: devices.ErrUnsupported for a file that can shrink, or is shorter; the kernel's.
func MapFile(f *os.File, n devices.Size) (*Mapping, error) {
	m := &Mapping{file: f}
	err := descriptor.Use(f, func(fd int) (err error) {
		seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
		if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
			return devices.ErrUnsupported
		}
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err != nil {
			return err
		}
		if n == 0 || n > maxMapping || st.Size < int64(n) {
			return fmt.Errorf("%d bytes of a file of %d: %w", uint64(n), st.Size, devices.ErrUnsupported)
		}
		m.dev, m.ino = st.Dev, st.Ino
		m.bytes, err = unix.Mmap(fd, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("map memory of another process: %w", err)
	}
	return m, nil
}

// maxMapping bounds a mapping, in bytes: the address space of a process has 2^47.
const maxMapping = 1 << 45

// Release unmaps the file. No span of the mapping may be in use.
func (m *Mapping) Release() error { return unix.Munmap(m.bytes) }

// MappedSpan returns the span of n bytes, from off, of a mapped file of a device's FileTier.
// The range must be inside the mapping.
func MappedSpan(device devices.Name, m *Mapping, off int64, n devices.Size) Span {
	return Span{file: m.file, mapped: m, name: device, off: off, n: n}
}

// inMemory returns the bytes of a host span, or of a span of a mapped file; nil for others.
func (s Span) inMemory() []byte {
	if s.mapped != nil {
		return s.mapped.bytes[s.off : s.off+int64(s.n)]
	}
	return s.host
}
