package transport

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/internal/descriptor"
)

// Mapping is the first part of a file in memory that the kernel keeps from shrinking
// (F_SEAL_SHRINK), mapped into this process: its bytes are copied without a system call.
// A file that can shrink is never mapped, since its owner could make the daemon fail
// (SIGBUS).
type Mapping struct {
	maps     *Mappings
	file     *os.File
	bytes    []byte
	dev, ino uint64
}

const (
	// mostMapped and mostMappings bound the mappings of a process, in bytes and in number: other
	// processes choose their sizes, which cost them nothing, and the address space (2^47 bytes) and the
	// kernel's list of mappings (65 530) are shared with everything else in this one.
	mostMapped   = 1 << 44
	mostMappings = 1 << 14
)

// Mappings makes mappings, within bounds. The zero value is ready to use, by any goroutine.
type Mappings struct {
	mu sync.Mutex
	// +checklocks:mu
	bytes devices.Size
	// +checklocks:mu
	count int
}

// reserve counts a mapping of n bytes, if there is room for it.
func (a *Mappings) reserve(n devices.Size) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n == 0 || n > mostMapped-a.bytes || a.count >= mostMappings {
		return false
	}
	a.bytes, a.count = a.bytes+n, a.count+1
	return true
}

func (a *Mappings) release(n devices.Size) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bytes, a.count = a.bytes-n, a.count-1
}

// Map maps the first n bytes of a file, which stays the caller's and must be open for
// reading and writing until Release.
//
// Errors: devices.ErrUnsupported for a file that can shrink, or is shorter, and beyond the bounds; the
// kernel's.
func (a *Mappings) Map(f *os.File, n devices.Size) (*Mapping, error) {
	if !a.reserve(n) {
		return nil, fmt.Errorf("map %d bytes of another process: %w", uint64(n), devices.ErrUnsupported)
	}
	m := &Mapping{maps: a, file: f}
	err := descriptor.Use(f, func(fd int) (err error) {
		seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
		if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
			return devices.ErrUnsupported
		}
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err != nil {
			return err
		}
		if st.Size < int64(n) {
			return fmt.Errorf("%d bytes of a file of %d: %w", uint64(n), st.Size, devices.ErrUnsupported)
		}
		m.dev, m.ino = st.Dev, st.Ino
		m.bytes, err = unix.Mmap(fd, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
		return err
	})
	if err != nil {
		a.release(n)
		return nil, fmt.Errorf("map memory of another process: %w", err)
	}
	// Core dumps need no memory of others; without this they are only larger.
	_ = unix.Madvise(m.bytes, unix.MADV_DONTDUMP)
	return m, nil
}

// Release unmaps the file. No span of the mapping may be in use.
func (m *Mapping) Release() error {
	n := devices.Size(len(m.bytes))
	err := unix.Munmap(m.bytes)
	m.maps.release(n)
	return err
}

// isOfFile reports whether two mappings are of one file.
func (m *Mapping) isOfFile(of *Mapping) bool { return m.dev == of.dev && m.ino == of.ino }

// holds reports whether n bytes at an offset are inside the mapping.
func (m *Mapping) holds(off uint64, n devices.Size) bool {
	return devices.Range{Off: devices.Offset(off), Len: n}.Within(devices.Size(len(m.bytes)))
}

// MappedSpan returns the span of n bytes, from off, of a mapped file of a device's FileTier.
// The range must be inside the mapping.
func MappedSpan(device devices.Name, m *Mapping, off int64, n devices.Size) Span {
	return Span{file: m.file, mapped: m, name: device, off: off, n: n}
}

// inMemory returns the bytes of a host span, or of a span of a mapped file; nil for others.
func (s *Span) inMemory() []byte {
	if s.mapped != nil {
		return s.mapped.bytes[s.off : s.off+int64(s.n)]
	}
	return s.host
}
