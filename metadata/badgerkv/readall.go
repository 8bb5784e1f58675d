package badgerkv

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"
)

// readerAt is ReadAt of os.File, or has faults as well.
type readerAt func(f *os.File, p []byte, off int64) (int, error)

// sector is the size, in bytes, of the pieces in which a file is read of which the disk
// does not give all.
const sector = 4096

// all fills p with the bytes with which a file begins. What the disk does not give is
// zero, and counted in bytes.
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

// file reads all of a file into buf, or a larger slice.
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

// unreadable words that a disk does not give some bytes.
func unreadable(n int) error {
	return fmt.Errorf("%s can't be read: %w", humanize.IBytes(uint64(n)), unix.EIO)
}
