package objects

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/transport"
)

// ReadBlob copies the content from off on to registered memory: fewer bytes than that has only at
// the end of the file, or if the context ends after some.
//
// Errors: also those of the memory: ErrLost, devices.ErrRange.
func (f *File) ReadBlob(ctx context.Context, off uint64, to Blob) (n uint64, err error) {
	err = content.Walk(ctx, f.obj.looker(ctx, false), off, to.Len, func(at content.Piece) error {
		where := to.Off + at.Off - off
		if at.Hole {
			err = to.Region.zero(ctx, where, at.N, f.obj.table.hole)
		} else {
			err = to.Region.write(ctx, where, at.Span)
		}
		if err == nil {
			n += at.N
		}
		return err
	})
	if n > 0 {
		f.Accessed()
	}
	if n > 0 && stopped(err) {
		err = nil
	}
	if err != nil {
		return n, fmt.Errorf("read object %d: %w", f.obj.ino, err)
	}
	return n, nil
}

// WriteBlob writes the content of registered memory.
//
// Errors: also those of the memory: ErrLost, devices.ErrRange.
func (f *File) WriteBlob(ctx context.Context, w Write, from Blob) (n uint64, err error) {
	seen, err := from.Region.find(ctx, from.Off, from.Len)
	if err != nil {
		return 0, err
	}
	defer seen.Release()
	for i := range seen.Len() {
		at := seen.At(i)
		for left := at.N; left > 0; {
			src, hole := at.Span, f.obj.table.hole
			if at.Hole {
				src = transport.HostSpan(hole[:min(left, uint64(len(hole)))])
			}
			m, err := f.CopyIn(ctx, src, w)
			n += m.N
			if err != nil || m.N < uint64(src.Len()) {
				return n, err
			}
			left -= m.N
			w.Off = m.Off + m.N
		}
	}
	return n, nil
}

// Put writes bytes at an offset of the blob.
func (b Blob) Put(ctx context.Context, off uint64, p []byte) error {
	return b.Region.write(ctx, b.Off+off, transport.HostSpan(p))
}

// Get reads bytes at an offset of the blob.
func (b Blob) Get(ctx context.Context, off uint64, p []byte) error {
	seen, err := b.Region.find(ctx, b.Off+off, uint64(len(p)))
	if err != nil {
		return err
	}
	defer seen.Release()
	for i := range seen.Len() {
		at := seen.At(i)
		part := p[at.Off-b.Off-off:][:at.N]
		if at.Hole {
			clear(part)
			continue
		}
		if _, err = b.Region.holder.store.engine.Copy(ctx, transport.HostSpan(part), at.Span); err != nil {
			return err
		}
	}
	return nil
}
