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

// file reads a whole file into buf, or into a larger slice.
func (read readerAt) file(path string, buf []byte) (data []byte, unread int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return buf, 0, err
	}
	defer func() { _ = f.Close() }() // only read
	st, err := f.Stat()
	if err != nil {
		return buf, 0, err
	}
	buf = slices.Grow(buf[:0], int(st.Size()))[:st.Size()]
	unread, err = read.all(f, buf)
	return buf, unread, err
}

// unreadable returns an error saying that n bytes can't be read from the disk.
func unreadable(n int) error {
	return fmt.Errorf("%s can't be read: %w", humanize.IBytes(uint64(n)), unix.EIO)
}
