package transport

import (
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"
	"syscall"
)

// pagemap reports which pages of this process are mapped.
type pagemap struct {
	file *os.File
	// noScan is set if the kernel is older than 6.7 and lacks PAGEMAP_SCAN, which
	// is ten times as fast as reading.
	noScan atomic.Bool
}

func openPagemap() (*pagemap, error) {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil, err
	}
	return &pagemap{file: f}, nil
}

// mapped reports whether every page of [from, to), both page boundaries, is
// mapped.
func (p *pagemap) mapped(from, to uintptr) bool {
	if !p.noScan.Load() {
		missing, err := p.scan(uint64(from), uint64(to))
		if err == nil {
			return !missing
		}
		if !errors.Is(err, syscall.ENOTTY) && !errors.Is(err, syscall.EINVAL) {
			return false
		}
		p.noScan.Store(true)
	}
	page := uint64(os.Getpagesize())
	return p.read(uint64(from)/page, uint64(to)/page)
}

// entryMapped is the bit of a pagemap entry for a page that is mapped.
const entryMapped = 1 << 63

// read checks the entries of the pages [at, end), one by one.
func (p *pagemap) read(at, end uint64) bool {
	var buf [4096]byte
	for at < end {
		part := buf[:min(uint64(len(buf)), (end-at)*8)]
		if _, err := p.file.ReadAt(part, int64(at*8)); err != nil {
			return false
		}
		for ; len(part) > 0; part = part[8:] {
			if binary.NativeEndian.Uint64(part)&entryMapped == 0 {
				return false
			}
			at++
		}
	}
	return true
}
