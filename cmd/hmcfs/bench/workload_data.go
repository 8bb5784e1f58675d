package bench

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// request is the size of one sequential read or write.
const request = devices.MiB

// page is the size of one random read.
const page = 4096

// pattern returns the bytes of one request, which are not all the same.
func pattern() []byte {
	p := make([]byte, request)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}

// Write writes a file of size bytes by calls of 1 MiB. It replaces an existing file.
func Write(ctx context.Context, path string, size int64) (n int64, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := pattern()
	for n < size {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		k, err := f.Write(buf[:min(int64(request), size-n)])
		n += int64(k)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Read reads a whole file by calls of 1 MiB and returns its length.
func Read(ctx context.Context, path string) (n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := make([]byte, request)
	for {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		k, err := f.Read(buf)
		n += int64(k)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// ReadMapped reads a whole file through a shared mapping, 1 MiB at a time, and returns its
// length.
func ReadMapped(ctx context.Context, path string) (n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() == 0 {
		return 0, nil
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, unix.Munmap(data)) }()
	buf := make([]byte, request)
	for rest := data; len(rest) > 0; rest = rest[min(len(buf), len(rest)):] {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		n += int64(copy(buf, rest))
	}
	return n, nil
}

// Copy copies a file by copy_file_range, as cp does, and returns its length. It replaces an
// existing file.
func Copy(ctx context.Context, dst, src string) (n int64, err error) {
	from, err := os.Open(src)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := os.Create(dst)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	for {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		k, err := unix.CopyFileRange(int(from.Fd()), nil, int(to.Fd()), nil, int(devices.GiB), 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return n, &os.PathError{Op: "copy_file_range", Path: dst, Err: err}
		case k == 0:
			return n, nil
		}
		n += int64(k)
	}
}

// RandomRead reads count pages of 4 KiB at random offsets of a file, the same in each call,
// and returns count.
func RandomRead(ctx context.Context, path string, count int) (n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	pages := max(info.Size()/page, 1)
	buf := make([]byte, page)
	for range count {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		if _, err := f.ReadAt(buf, random.Int64N(pages)*page); err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		n++
	}
	return n, nil
}

// ReadAll reads several files concurrently, each as Read does, and returns the sum of their
// lengths.
func ReadAll(ctx context.Context, paths ...string) (int64, error) {
	var all sync.WaitGroup
	lengths, errs := make([]int64, len(paths)), make([]error, len(paths))
	for i, path := range paths {
		all.Go(func() { lengths[i], errs[i] = Read(ctx, path) })
	}
	all.Wait()
	var sum int64
	for _, n := range lengths {
		sum += n
	}
	return sum, errors.Join(errs...)
}
