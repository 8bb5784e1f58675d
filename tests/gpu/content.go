package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// odd is a size of calls that is not a multiple of a page, chunk or request.
const odd = 1<<20 + 4097

// content returns a part of the content of a seed.
func content(seed uint64, off int64, n int) []byte { return kit.Bytes(seed, off, n) }

// writeContent writes the content of a seed to a new or existing file, without truncating it,
// in calls of the given size.
func writeContent(path string, seed uint64, size devices.Size, call int) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	p := make([]byte, call)
	for done := devices.Size(0); done < size; {
		part := p[:min(devices.Size(call), size-done)]
		kit.FillAt(part, seed, int64(done))
		n, err := f.WriteAt(part, int64(done))
		if err != nil {
			return errors.Join(fmt.Errorf("at %d: %w", done, err), f.Close())
		}
		done += devices.Size(n)
	}
	return f.Close()
}

// sameContent reads a whole file, in calls of the given size, and compares it with the content
// of a seed.
func sameContent(path string, seed uint64, size devices.Size, call int) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p := make([]byte, call)
	at := int64(0)
	for {
		n, err := f.Read(p)
		if i := kit.DiffAt(p[:n], seed, at); i >= 0 {
			want := kit.Bytes(seed, at+int64(i), 1)[0]
			return fmt.Errorf("%s differs at %d: is %02x, should be %02x", path, at+int64(i), p[i], want)
		}
		at += int64(n)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("at %d: %w", at, err)
		}
		if n == 0 {
			break
		}
	}
	if at != int64(size) {
		return fmt.Errorf("%s has %d bytes, should have %d", path, at, size)
	}
	return nil
}

// sameMapped compares a shared map of a file with the content of a seed.
func sameMapped(path string, seed uint64, size devices.Size) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(p)) }()
	if i := kit.DiffAt(p, seed, 0); i >= 0 {
		return fmt.Errorf("the map of %s differs at %d", path, i)
	}
	return nil
}

// onlyZeros checks that a part of a file reads as zeros.
func onlyZeros(path string, from, to devices.Size) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p := make([]byte, 1<<20)
	for at := from; at < to; {
		n, err := f.ReadAt(p[:min(devices.Size(len(p)), to-at)], int64(at))
		for i, b := range p[:n] {
			if b != 0 {
				return fmt.Errorf("%s at %d is %02x, should be 0: another object's byte", path, at+devices.Size(i), b)
			}
		}
		at += devices.Size(n)
		if err != nil && at < to {
			return fmt.Errorf("read %s at %d: %w", path, at, err)
		}
	}
	return nil
}
