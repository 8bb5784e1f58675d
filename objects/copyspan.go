package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/transport"
)

// maxZeros bounds the part of a hole that is sent to another node at once, in bytes.
const maxZeros = 8 << 20

// Moved is the result of CopyOut and CopyIn.
type Moved struct {
	// N is the number of bytes copied; Off is their offset in the file.
	N, Off uint64
	// Path is the path that the last of them took; empty if there were none.
	Path transport.Path
}

// CopyOut copies the content from off on to dst, which may be memory of another node.
// It copies fewer bytes than dst has room for only at the end of the file, or if the
// context ends after some. Holes are copied as zeros.
//
// After an error, dst holds unspecified bytes beyond the Moved.N that were counted.
func (f *File) CopyOut(ctx context.Context, off uint64, dst transport.Span) (Moved, error) {
	m := Moved{Off: off}
	look := f.obj.looker(ctx, false)
	put := func(at content.Piece) error {
		way, err := f.copyPiece(ctx, dst, at, at.Off-off)
		if err == nil {
			m.N += at.N
		}
		m.Path = cmp.Or(way, m.Path)
		return err
	}
	err := content.Walk(ctx, look, off, uint64(dst.Len()), put)
	for errors.Is(err, io.ErrUnexpectedEOF) && f.obj.content().Backing() != nil {
		// As in Peek: the file has another end by now.
		err = content.Walk(ctx, look, off+m.N, uint64(dst.Len())-m.N, put)
	}
	if m.N > 0 {
		f.Accessed()
	}
	if m.N > 0 && stopped(err) {
		err = nil
	}
	if err != nil {
		return m, fmt.Errorf("copy from object %d: %w", f.obj.ino, err)
	}
	return m, nil
}

// copyPiece copies a piece to offset where of dst.
func (f *File) copyPiece(ctx context.Context, dst transport.Span, at content.Piece, where uint64) (transport.Path, error) {
	to, err := dst.Part(devices.Offset(where), devices.Size(at.N))
	if err != nil {
		return "", err
	}
	switch {
	case !at.Hole:
		return f.obj.table.engine.Copy(ctx, to, at.Span)
	case !dst.IsRemote():
		return "", f.obj.table.engine.Fill(ctx, to, 0)
	}
	var path transport.Path
	zeros := f.obj.table.hole
	if at.N > uint64(len(zeros)) {
		zeros = make([]byte, min(at.N, maxZeros))
	}
	for done := uint64(0); done < at.N; {
		n := min(at.N-done, uint64(len(zeros)))
		part, err := to.Part(devices.Offset(done), devices.Size(n))
		if err == nil {
			path, err = f.obj.table.engine.Copy(ctx, part, transport.HostSpan(zeros[:n]))
		}
		if err != nil {
			return path, err
		}
		done += n
	}
	return path, nil
}

// CopyIn is WriteAt for any source span, also one of another node.
func (f *File) CopyIn(ctx context.Context, src transport.Span, w Write) (Moved, error) {
	o := f.obj
	m := Moved{Off: w.Off}
	err := o.change(ctx, func() (err error) {
		if w.Append {
			if m.Off, err = o.end(); err != nil {
				return err
			}
		}
		var attrs *attributes
		if w.KillPriv {
			attrs = f.store.attrs
		}
		m.N, m.Path, err = o.put(ctx, m.Off, src, attrs)
		return err
	})
	if m.N > 0 && stopped(err) {
		err = nil
	}
	if err != nil {
		return m, fmt.Errorf("write %s: %w", f.named(ctx, err), err)
	}
	return m, nil
}

// named returns a text that names the file in an error: its path if a device is full, which the person at
// the log has to make room on, else its number.
func (f *File) named(ctx context.Context, err error) string {
	if errors.Is(err, devices.ErrOutOfMemory) {
		if path, perr := f.store.meta.PathOf(ctx, f.obj.ino); perr == nil && path != "" {
			return path
		}
	}
	return fmt.Sprintf("object %d", f.obj.ino)
}
