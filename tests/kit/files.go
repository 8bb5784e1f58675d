package kit

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// WriteNew makes a file, which must not exist.
func WriteNew(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// CopyRange has the kernel copy the first n bytes of a file to a new one.
func CopyRange(from, to string, n int) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // it was only read
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for n > 0 && err == nil {
		var some int
		some, err = unix.CopyFileRange(int(src.Fd()), nil, int(dst.Fd()), nil, n, 0)
		switch {
		case errors.Is(err, unix.EINTR): // a signal of Go's own
			some, err = 0, nil
		case some == 0 && err == nil:
			err = errors.New("the copy ends early")
		}
		n -= some
	}
	if err != nil {
		err = fmt.Errorf("copy %s to %s, with %d bytes left: %w", from, to, n, err)
	}
	return errors.Join(err, dst.Close())
}

// Same compares bytes of a file.
func Same(name string, got, want []byte) error {
	if at := FirstDiff(got, want); at >= 0 {
		return fmt.Errorf("%s: %d bytes of %d, different at %d", name, len(got), len(want), at)
	}
	return nil
}

// InOrder calls the steps until one fails.
func InOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
