package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// shared is a memfd that is mapped and has all its pages.
type shared struct {
	file *os.File
	p    []byte
}

func newShared(n int) (*shared, error) {
	fd, err := unix.MemfdCreate("hmcfs-bench", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	file := os.NewFile(uintptr(fd), "memfd")
	if err := file.Truncate(int64(n)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return mapShared(file, n)
}

// mapShared maps a file, which then belongs to the result.
func mapShared(file *os.File, n int) (*shared, error) {
	p, err := unix.Mmap(int(file.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map %d bytes: %w", n, err), file.Close())
	}
	for i := 0; i < n; i += os.Getpagesize() {
		p[i] = byte(i >> 12)
	}
	return &shared{file, p}, nil
}

func (s *shared) close() error { return errors.Join(unix.Munmap(s.p), s.file.Close()) }

// memcpy lets a process copy into memory of this one, and returns the bytes per second that it
// reports.
func (p *peers) memcpy(ctx context.Context, size devices.Size) (rate float64, err error) {
	ours, err := newShared(int(size))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, ours.close()) }()
	times := max(5, int(p.opts.moved/size))
	cmd := exec.CommandContext(ctx, "/proc/self/exe", childArg, "memcpy", "/proc/self/fd/3", strconv.Itoa(int(size)), strconv.Itoa(times))
	cmd.ExtraFiles = []*os.File{ours.file}
	out, err := measure.Output(cmd)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(out, 64)
}

// copyInto copies memory of this process into memory of another one, which is a file here, and
// returns bytes per second.
func copyInto(path string, size, times int) (rate float64, err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	theirs, err := mapShared(file, size)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, theirs.close()) }()
	ours, err := newShared(size)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, ours.close()) }()
	copy(theirs.p, ours.p) // to warm up
	begin := time.Now()
	for range times {
		copy(theirs.p, ours.p)
	}
	return float64(size) * float64(times) / time.Since(begin).Seconds(), nil
}
