package badgerkv

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"
)

// readerAt is os.File.ReadAt, or a version of it that injects faults.
type readerAt func(f *os.File, p []byte, off int64) (int, error)

// sector is the size, in bytes, of the pieces in which a file is read if the disk can't
// read all of it.
const sector = 4096

// all fills p from the start of a file. Sectors that the disk can't read are zeroed, and
// their bytes counted.
func (read readerAt) all(f *os.File, p []byte) (unread int, err error) {
	if _, err = read(f, p, 0); !errors.Is(err, unix.EIO) {
		return 0, err
	}
	for at := 0; at < len(p); at += sector {
		piece := p[at:min(at+sector, len(p))]
		_, err = read(f, piece, int64(at))
		if errors.Is(err, unix.EIO) {
			clear(piece)
			unread += len(piece)
		} else if err != nil {
			return unread, err
		}
	}
	return unread, nil
}

// contents holds the data of a file, or its first part.
type contents struct {
	data   []byte
	size   int64 // of the file
	unread int   // bytes that the disk fails to read, which are zero in data
}

// file reads a whole file into buf, or into a larger slice.
func (read readerAt) file(path string, buf []byte) (contents, error) {
	return read.upTo(path, buf, func(_ *os.File, size int64) int64 { return size })
}

// written reads a file up to its last written byte: a log is created with a size that it
// seldom fills.
func (read readerAt) written(path string) (contents, error) { return read.upTo(path, nil, dataEnd) }

// upTo reads a file up to the offset that end returns for it.
func (read readerAt) upTo(path string, buf []byte, end func(f *os.File, size int64) int64) (c contents, err error) {
	f, err := os.Open(path)
	if err != nil {
		return c, err
	}
	defer func() { _ = f.Close() }() // only read
	st, err := f.Stat()
	if err != nil {
		return c, err
	}
	c.size = st.Size()
	n := int(end(f, c.size))
	c.data = slices.Grow(buf[:0], n)[:n]
	c.unread, err = read.all(f, c.data)
	return c, err
}

// unreadable returns an error saying that n bytes can't be read from the disk.
func unreadable(n int) error {
	return fmt.Errorf("%s can't be read: %w", humanize.IBytes(uint64(n)), unix.EIO)
}

// dataEnd returns the offset of the hole at the end of a file, or the file's size.
func dataEnd(f *os.File, size int64) int64 {
	var end int64
	for end < size {
		data, err := unix.Seek(int(f.Fd()), end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return end
		}
		if err == nil {
			end, err = unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		}
		if err != nil {
			return size
		}
	}
	return min(end, size)
}
