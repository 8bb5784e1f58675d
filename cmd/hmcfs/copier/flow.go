package copier

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/hmcfs/hmcfs/devices"
)

// flow moves bytes from reader to writer through a few buffers that circulate, so that it
// reads and writes at the same time.
type flow struct {
	buffer devices.Size
	read   func(p []byte, off int64) (int, error)
	// write is called with the bytes read, in order.
	write func(p []byte, off int64) error
}

// piece is a buffer with bytes of the source.
type piece struct {
	bytes []byte
	off   int64
}

// buffers is the number of buffers that circulate between reader and writer.
const buffers = 3

// run moves [off, end) of the source, or up to its end if that comes first.
func (f *flow) run(ctx context.Context, off, end int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	free := make(chan []byte, buffers)
	full := make(chan piece, buffers)
	for range buffers {
		free <- nil
	}
	read := make(chan error, 1)
	go func() {
		read <- f.fill(ctx, segment{off, end}, free, full)
		close(full)
	}()
	var werr error
	for got := range full {
		if werr == nil {
			werr = ctx.Err()
		}
		if werr == nil {
			werr = f.write(got.bytes, got.off)
		}
		if werr != nil {
			cancel()
		}
		free <- got.bytes[:cap(got.bytes)]
	}
	rerr := <-read
	if werr != nil {
		return werr
	}
	return rerr
}

// fill reads the segment into free buffers.
func (f *flow) fill(ctx context.Context, p segment, free chan []byte, full chan<- piece) error {
	for off := p.off; off < p.end; {
		var buf []byte
		select {
		case buf = <-free:
		case <-ctx.Done():
			return ctx.Err()
		}
		if buf == nil {
			buf = make([]byte, min(int64(f.buffer), p.end-p.off))
		}
		n, err := f.read(buf[:min(int64(len(buf)), p.end-off)], off)
		if n > 0 {
			full <- piece{bytes: buf[:n], off: off}
			off += int64(n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Source is a source of bytes.
type Source struct {
	// Name names the source in errors.
	Name string
	Size int64
	// ReadAt is as in io.ReaderAt, but may read fewer bytes without an error. It is called from
	// one goroutine.
	ReadAt func(p []byte, off int64) (int, error)
}

// Drain writes the bytes of a source, or the part selected by the options, to w, and returns
// the number of bytes written. Of the options it uses Off, Len, Buffer and Moved.
func Drain(ctx context.Context, w io.Writer, src Source, o Options) (done int64, err error) {
	c := &copier{opts: o}
	f := flow{buffer: cmp.Or(o.Buffer, defaultBuffer), read: src.ReadAt, write: func(p []byte, _ int64) error {
		n, werr := w.Write(p)
		done += int64(n)
		c.moved(int64(n))
		return werr
	}}
	part := o.part(src.Size)
	if err = f.run(ctx, part.off, part.end); err != nil && ctx.Err() != nil {
		return done, &interruptedError{src.Name, "not all of it was written"}
	}
	return done, err
}
