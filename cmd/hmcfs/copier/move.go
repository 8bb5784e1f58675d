package copier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// The sizes of one copy_file_range: as much as hmcfs copies in one call, unless that takes
// so long that the progress bar stands still; then as much as takes about rangeTime.
const (
	leastRange = 1 << 20
	mostRange  = 1 << 30
	rangeTime  = time.Second
)

// mover copies one file's bytes.
type mover struct {
	c        *copier
	src, dst *os.File
	// part is the range of the source to copy, and shift the difference between its offset
	// in the source and in the target.
	part  segment
	shift int64
	// done counts the bytes moved; consistent is the offset up to which the target equals
	// the source.
	done, consistent int64
	ranged           bool
	noRange          bool
	rangeSize        int
}

// run copies every segment and sets the size.
func (m *mover) run(ctx context.Context, info fs.FileInfo) error {
	parts, err := m.parts(info)
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
	// The size is that of the source as it was copied, including a hole at the end; a
	// source that was truncated in the meantime has ended the copy earlier.
	st, err := m.dst.Stat()
	if err != nil {
		return err
	}
	size := m.part.end - m.shift
	if tail := len(parts) == 0 || parts[len(parts)-1].end < m.part.end; tail && st.Size() < size {
		return m.dst.Truncate(size)
	}
	return nil
}

// parts returns the ranges to copy, in order.
func (m *mover) parts(info fs.FileInfo) ([]segment, error) {
	all, err := segments(m.src, info)
	var parts []segment
	for _, s := range all {
		s.off, s.end = max(s.off, m.part.off), min(s.end, m.part.end)
		if s.off < s.end {
			parts = append(parts, s)
		}
	}
	return parts, err
}

// fits fails early if the target's filesystem has too little room for the data. Its figures
// alone are not trusted, as memory may be about to be freed: it fails only if the space
// cannot be allocated either. To allocate always would cost one large allocation, which is
// slower than many small ones that are available at once.
func (m *mover) fits(parts []segment) error {
	var need int64
	for _, p := range parts {
		need += p.end - p.off
	}
	var st unix.Statfs_t
	if need == 0 || unix.Fstatfs(int(m.dst.Fd()), &st) != nil {
		return nil
	}
	if st.Bavail >= uint64(need)/uint64(st.Bsize)+1 {
		return nil
	}
	for _, p := range parts {
		err := unix.Fallocate(int(m.dst.Fd()), unix.FALLOC_FL_KEEP_SIZE, p.off-m.shift, p.end-p.off)
		if errors.Is(err, unix.ENOSPC) {
			free := devices.Size(st.Bavail) * devices.Size(st.Bsize)
			return fmt.Errorf("%s: not enough space for %d bytes (%v), only %v are free: %w", m.dst.Name(), need, devices.Size(need), free, err)
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

// byRange lets the kernel copy. It returns early, without an error, if the kernel cannot,
// and at the end of a source that has become shorter.
func (m *mover) byRange(ctx context.Context, p segment) (int64, error) {
	in, out := p.off, p.off-m.shift
	for in < p.end {
		if err := ctx.Err(); err != nil {
			return in, err
		}
		begun := time.Now()
		var n int
		var err error
		Interruptibly(ctx, func() {
			n, err = unix.CopyFileRange(int(m.src.Fd()), &in, int(m.dst.Fd()), &out, int(min(p.end-in, int64(m.rangeSize))), 0)
		})
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case isNoRange(err):
			m.noRange = true
			return in, nil
		case err != nil:
			return in, fmt.Errorf("copy to %s: %w", m.dst.Name(), err)
		case n == 0:
			return p.end, nil
		}
		m.ranged = true
		m.count(int64(n), out)
		m.adapt(n, time.Since(begun))
	}
	return in, nil
}

func isNoRange(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EXDEV) ||
		errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL)
}

// adapt sets the size of the next range by how long this one took: the maximum, unless it
// took longer than rangeTime.
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

// byBuffers copies through buffers, reading and writing at the same time.
func (m *mover) byBuffers(ctx context.Context, p segment) error {
	f := flow{buffer: m.c.opts.Buffer, read: m.src.ReadAt, write: m.write}
	return f.run(ctx, p.off, p.end)
}

// write writes bytes of the source at their place in the target.
func (m *mover) write(bytes []byte, off int64) error {
	at := off - m.shift
	n, err := m.dst.WriteAt(bytes, at)
	m.count(int64(n), at+int64(n))
	return err
}
