package opencl

import (
	"context"
	"os"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
	"github.com/hmcfs/hmcfs/devices/internal/moves"
)

// mapWhole maps the buffer if it is not mapped.
//
// Preconditions: the caller is a host user of the buffer.
func (d *device) mapWhole(b *buffer) error {
	b.mapMu.Lock()
	defer b.mapMu.Unlock()
	if b.addr != 0 {
		return nil
	}
	addr, err := d.api.mapBuffer(d.within, b.mem, uint64(b.size))
	if err != nil {
		return err
	}
	b.addr = addr
	return nil
}

// unmap unmaps the buffer if it is mapped.
//
// Preconditions: the buffer has no host user.
func (d *device) unmap(b *buffer) error {
	b.mapMu.Lock()
	defer b.mapMu.Unlock()
	if b.addr == 0 {
		return nil
	}
	addr := b.addr
	b.addr = 0
	return d.api.unmap(d.within, b.mem, addr)
}

// bytes returns the mapped bytes of a part of the buffer.
//
// Preconditions: the caller is a host user, so that the buffer stays mapped, and the part
// is inside the buffer.
func (b *buffer) bytes(r devices.Range) []byte {
	b.mapMu.Lock()
	defer b.mapMu.Unlock()
	return dl.Bytes(b.addr+uintptr(r.Off), int(r.Len))
}

// populate makes the host's kernel allocate all pages of a new buffer.
func (d *mappedDevice) populate(ctx context.Context, b *buffer) error {
	if err := d.hold(ctx, b); err != nil {
		return err
	}
	defer d.release(b)
	return moves.Pieces(ctx, b.size, sharedPiece, func(off, n devices.Size) error {
		populatePages(b.bytes(devices.Range{Off: devices.Offset(off), Len: n}), int(b.pageOffset(off)))
		return nil
	})
}

// pageOffset returns the offset of the byte at off within its page.
func (b *buffer) pageOffset(off devices.Size) uintptr {
	b.mapMu.Lock()
	defer b.mapMu.Unlock()
	return (b.addr + uintptr(off)) % uintptr(os.Getpagesize())
}

// populatePages makes the kernel allocate the pages under p, whose first byte is skew bytes
// into its page. The content of p is lost.
func populatePages(p []byte, skew int) {
	page := os.Getpagesize()
	first := (page - skew) % page
	if whole := (len(p) - first) / page * page; whole > 0 {
		// Kernels before 5.14, and memory that a driver maps itself, don't support this
		// advice.
		if unix.Madvise(p[first:first+whole], unix.MADV_POPULATE_WRITE) == nil {
			p[0], p[len(p)-1] = 0, 0
			return
		}
	}
	for i := 0; i < len(p); i += page {
		p[i] = 0
	}
	p[len(p)-1] = 0
}

// setAll sets every byte of p.
func setAll(p []byte, value byte) {
	block := p[:min(len(p), int(64*devices.KiB))]
	for i := range block {
		block[i] = value
	}
	for rest := p[len(block):]; len(rest) > 0; {
		rest = rest[copy(rest, block):]
	}
}

// releaseMemory releases a view's reference to its memory.
func (d *device) releaseMemory(m *devices.Memory) {
	if err := m.Release(); err != nil {
		d.log.Warn("memory of a view not released", zap.Error(err))
	}
}
