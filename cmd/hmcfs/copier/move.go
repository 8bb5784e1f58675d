package copier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// The sizes of one copy_file_range: as much as hmcfs copies at once, unless
// that takes so long that the progress bar stands still; then what takes
// about rangeTime.
const (
	leastRange = 1 << 20
	mostRange  = 1 << 30
	rangeTime  = time.Second
)

// mover moves one file's bytes.
type mover struct {
	c        *copier
	src, dst *os.File
	size     int64
	// done counts the bytes that were moved; consistent is up to where the
	// target is like the source.
	done, consistent int64
	ranged           bool
	noRange          bool
	rangeSize        int
}

// run copies every segment and sets the size.
func (m *mover) run(ctx context.Context, info fs.FileInfo) error {
	parts, err := segments(m.src, info)
	if err != nil {
		return err
	}
	if err = m.fits(parts); err != nil {
		return err
	}
	m.rangeSize = mostRange
	m.noRange = !oneFileSystem(m.src, m.dst)
	for _, p := range parts {
		if err = m.segment(ctx, p); err != nil {
			return err
		}
	}
	if err = ctx.Err(); err != nil {
		return err
	}
	// The size is that of the source as it was copied, a hole at the end
	// included; a source that was cut meanwhile has ended the copy earlier.
	st, err := m.dst.Stat()
	if err != nil {
		return err
	}
	if tail := len(parts) == 0 || parts[len(parts)-1].end < m.size; tail && st.Size() < m.size {
		return m.dst.Truncate(m.size)
	}
	return nil
}

// fits fails early where the target's file system has too little room for
// the data. Its figures alone are not trusted, as memory may be on its way
// back: only what can't be taken either does not fit. Taking it always would
// cost one large allocation, which is slower than many that are at hand.
func (m *mover) fits(parts []segment) error {
	var need int64
	for _, p := range parts {
		need += p.end - p.off
	}
	var st unix.Statfs_t
	if need == 0 || unix.Fstatfs(int(m.dst.Fd()), &st) != nil || st.Bavail >= uint64(need)/uint64(st.Bsize)+1 {
		return nil
	}
	for _, p := range parts {
		err := unix.Fallocate(int(m.dst.Fd()), unix.FALLOC_FL_KEEP_SIZE, p.off, p.end-p.off)
		if errors.Is(err, unix.ENOSPC) {
			free := devices.Size(st.Bavail) * devices.Size(st.Bsize)
			return fmt.Errorf("%s: no space for %d bytes (%v), %v are free: %w", m.dst.Name(), need, devices.Size(need), free, err)
		}
	}
	return nil
}

func oneFileSystem(a, b *os.File) bool {
	var sa, sb unix.Stat_t
	return unix.Fstat(int(a.Fd()), &sa) == nil && unix.Fstat(int(b.Fd()), &sb) == nil && sa.Dev == sb.Dev
}

func (m *mover) segment(ctx context.Context, p segment) error {
	off := p.off
	if !m.noRange {
		reached, err := m.byRange(ctx, p)
		if err != nil {
			return err
		}
		off = reached
	}
	if off >= p.end {
		return nil
	}
	return m.byBuffers(ctx, segment{off, p.end})
}

// byRange lets the kernel copy. It returns early, without an error, where it
// can't, and at the end of a source that has become shorter.
func (m *mover) byRange(ctx context.Context, p segment) (int64, error) {
	in, out := p.off, p.off
	for out < p.end {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		begun := time.Now()
		var n int
		var err error
		interruptibly(ctx, func() {
			n, err = unix.CopyFileRange(int(m.src.Fd()), &in, int(m.dst.Fd()), &out, int(min(p.end-out, int64(m.rangeSize))), 0)
		})
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case isNoRange(err):
			m.noRange = true
			return out, nil
		case err != nil:
			return out, fmt.Errorf("copy to %s: %w", m.dst.Name(), err)
		case n == 0:
			return p.end, nil
		}
		m.ranged = true
		m.count(int64(n), out)
		m.adapt(n, time.Since(begun))
	}
	return out, nil
}

func isNoRange(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EXDEV) ||
		errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL)
}

// adapt sets the next range's size by how long this one took: whole again as
// long as nobody waits for the bar to move.
func (m *mover) adapt(n int, took time.Duration) {
	m.rangeSize = mostRange
	if took > rangeTime {
		m.rangeSize = min(mostRange, max(leastRange, int(float64(n)*rangeTime.Seconds()/took.Seconds())))
	}
}

func (m *mover) count(n, reached int64) {
	m.done += n
	m.consistent = reached
	m.c.moved(n)
}

// piece is a buffer with bytes of the source.
type piece struct {
	bytes []byte
	off   int64
}

// buffers is how many buffers go round between reader and writer.
const buffers = 3

// byBuffers reads and writes at the same time.
func (m *mover) byBuffers(ctx context.Context, p segment) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	free := make(chan []byte, buffers)
	full := make(chan piece, buffers)
	for range buffers {
		free <- nil
	}
	read := make(chan error, 1)
	go func() {
		read <- m.fill(ctx, p, free, full)
		close(full)
	}()
	var werr error
	for got := range full {
		if werr == nil {
			werr = ctx.Err()
		}
		if werr == nil {
			werr = m.write(got)
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

func (m *mover) write(p piece) error {
	n, err := m.dst.WriteAt(p.bytes, p.off)
	m.count(int64(n), p.off+int64(n))
	return err
}

// fill reads the segment into whatever buffers are free.
func (m *mover) fill(ctx context.Context, p segment, free chan []byte, full chan<- piece) error {
	for off := p.off; off < p.end; {
		var buf []byte
		select {
		case buf = <-free:
		case <-ctx.Done():
			return ctx.Err()
		}
		if buf == nil {
			buf = make([]byte, m.c.opts.Buffer)
		}
		n, err := m.src.ReadAt(buf[:min(int64(m.c.opts.Buffer), p.end-off)], off)
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
