package tests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// maxCrashFile is the maximum size of the files of a bytesWriter.
const maxCrashFile = 384 << 10

// bytesWriter changes one file and knows its expected content, whenever the daemon dies.
type bytesWriter struct {
	path string
	// volatile is true if the bytes are lost with the daemon.
	volatile bool
	rng      *rand.Rand
	// acked is the content after all changes that were acknowledged, next the content after
	// the pending change, if there is one.
	acked, next []byte
	// written is true if the file has had bytes to lose since it was created.
	written bool
}

// work changes the file until the daemon is dead or stop returns true.
func (w *bytesWriter) work(stop func() bool) error {
	f, err := os.OpenFile(w.path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return deadOr(err)
	}
	defer func() { _ = f.Close() }() // the daemon is dead
	for !stop() {
		if w.rng.IntN(20) == 0 {
			if err = f.Close(); err != nil {
				return deadOr(err)
			}
			if f, err = os.OpenFile(w.path, os.O_RDWR, 0); err != nil {
				return deadOr(err)
			}
		}
		if err := w.change(f); err != nil {
			return deadOr(err)
		}
	}
	return nil
}

// deadOr hides the errors that are due to a dead daemon.
func deadOr(err error) error {
	for _, dead := range []error{unix.ENOTCONN, unix.ECONNABORTED, unix.EIO, unix.ENODEV} {
		if errors.Is(err, dead) {
			return nil
		}
	}
	return err
}

// change makes one random change and records that it was acknowledged.
func (w *bytesWriter) change(f *os.File) error {
	off, n := w.rng.IntN(maxCrashFile), 1+w.rng.IntN(96<<10)
	off = min(off, maxCrashFile-n)
	var do func() error
	switch w.rng.IntN(12) {
	case 0:
		w.next = resized(w.acked, off)
		do = func() error { return f.Truncate(int64(off)) }
	case 1:
		end := min(off+n, len(w.acked))
		w.next = bytes.Clone(w.acked)
		if off < end {
			clear(w.next[off:end])
		}
		do = func() error {
			return fallocate(f, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
		}
	default:
		data := kit.Bytes(w.rng.Uint64(), int64(off), n)
		w.next = resized(w.acked, max(len(w.acked), off+n))
		copy(w.next[off:], data)
		w.written = true
		do = func() error {
			_, err := f.WriteAt(data, int64(off))
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	w.acked, w.next = w.next, nil
	return nil
}

// resized returns a copy of p, extended by zeros or truncated.
func resized(p []byte, size int) []byte {
	out := make([]byte, size)
	copy(out, p)
	return out
}

// check compares the file with the acknowledged content, after a remount, and reports whether
// it is lost. The next round starts with the content found.
func (w *bytesWriter) check() (lost bool, err error) {
	got, err := os.ReadFile(w.path)
	if errors.Is(err, os.ErrNotExist) && len(w.acked) == 0 {
		w.acked, w.next = nil, nil
		return false, nil
	}
	if w.volatile && errors.Is(err, unix.EIO) {
		return true, w.checkLost()
	}
	if err != nil {
		return false, err
	}
	if w.volatile && len(bytes.TrimLeft(w.acked, "\x00")) > 0 && w.next == nil {
		return false, fmt.Errorf("%s: %d bytes are readable though their device's memory is gone", w.path, len(got))
	}
	if err := w.consistent(got); err != nil {
		return false, fmt.Errorf("%s: %w", w.path, err)
	}
	w.acked, w.next = got, nil
	return false, nil
}

// consistent returns an error if the content contradicts what was acknowledged: each byte must
// be the one before or after the pending change.
func (w *bytesWriter) consistent(got []byte) error {
	next := w.next
	if next == nil {
		next = w.acked
	}
	if len(got) < min(len(w.acked), len(next)) || len(got) > max(len(w.acked), len(next)) {
		return fmt.Errorf("%d bytes; acknowledged are %d, and %d after what was under way", len(got), len(w.acked), len(next))
	}
	before, after := resized(w.acked, len(got)), resized(next, len(got))
	for i, b := range got {
		if b != before[i] && b != after[i] {
			return fmt.Errorf("byte %d is %#x; acknowledged is %#x, or %#x after what was under way", i, b, before[i], after[i])
		}
	}
	return nil
}

// checkLost checks that every read of a lost file returns the right error, and that the file
// can have been written to at all.
func (w *bytesWriter) checkLost() error {
	state, err := getXattr(w.path, "user.hmc.state")
	if err != nil || state != "lost" {
		return fmt.Errorf("%s can't be read; its state is %q, %w", w.path, state, err)
	}
	if !w.written {
		return fmt.Errorf("%s is lost though nothing was written to it", w.path)
	}
	f, err := os.Open(w.path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the file was only read
	for _, off := range []int64{0, 4096, int64(w.rng.IntN(maxCrashFile))} {
		n, err := f.ReadAt(make([]byte, 100), off)
		if n > 0 || !errors.Is(err, unix.EIO) && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s is lost, but a read at %d gives %d bytes, %w", w.path, off, n, err)
		}
	}
	return nil
}

// forget resets the state after the file was removed.
func (w *bytesWriter) forget() { w.acked, w.next, w.written = nil, nil, false }

// name returns the path below the mount, as fsck reports it.
func (w *bytesWriter) name() string {
	return filepath.Join(filepath.Base(filepath.Dir(w.path)), filepath.Base(w.path))
}

func getXattr(path, name string) (string, error) {
	buf := make([]byte, 4096)
	n, err := unix.Lgetxattr(path, name, buf)
	return string(buf[:max(n, 0)]), err
}
