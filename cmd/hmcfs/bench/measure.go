package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	bytesPerSecond = "B/s"
	opsPerSecond   = "ops/s"
	// request is the size of one sequential read or write.
	request = 1 << 20
	// small is how many files one round of the metadata rows makes.
	small = 1000
	// randomReads is how many 4 KiB reads one round makes.
	randomReads = 2000
)

// subject is a directory that is measured.
type subject struct {
	dir  string
	size int64
}

// measurement is one row: run does it once and returns how many units.
type measurement struct {
	what, unit string
	run        func(ctx context.Context, s *subject) (int64, error)
}

// measurements lists the rows. Later ones use what earlier ones wrote.
func measurements() []measurement {
	return []measurement{
		{"write 1 MiB", bytesPerSecond, write},
		{"read 1 MiB", bytesPerSecond, read},
		{"copy inside", bytesPerSecond, copyInside},
		{"random read 4 KiB", opsPerSecond, randomRead},
		{"create and unlink", opsPerSecond, createUnlink},
		{"stat of absent names", opsPerSecond, statFiles},
	}
}

func (s *subject) file(name string) string { return filepath.Join(s.dir, name) }

func write(ctx context.Context, s *subject) (n int64, err error) {
	f, err := os.Create(s.file("data"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := make([]byte, request)
	for i := range buf {
		buf[i] = byte(i * 7)
	}
	for n < s.size && ctx.Err() == nil {
		k, err := f.Write(buf[:min(request, s.size-n)])
		n += int64(k)
		if err != nil {
			return n, err
		}
	}
	return n, ctx.Err()
}

func read(ctx context.Context, s *subject) (n int64, err error) {
	f, err := os.Open(s.file("data"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	buf := make([]byte, request)
	for ctx.Err() == nil {
		k, err := f.Read(buf)
		n += int64(k)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, ctx.Err()
}

func copyInside(ctx context.Context, s *subject) (n int64, err error) {
	src, err := os.Open(s.file("data"))
	if err != nil {
		return 0, err
	}
	defer src.Close()
	dst, err := os.Create(s.file("copy"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dst.Close(), os.Remove(dst.Name())) }()
	for ctx.Err() == nil {
		k, err := unix.CopyFileRange(int(src.Fd()), nil, int(dst.Fd()), nil, 1<<30, 0)
		if err != nil || k == 0 {
			return n, err
		}
		n += int64(k)
	}
	return n, ctx.Err()
}

func randomRead(ctx context.Context, s *subject) (int64, error) {
	f, err := os.Open(s.file("data"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	random := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 4096)
	for range randomReads {
		off := random.Int64N(max(s.size/4096, 1)) * 4096
		if _, err := f.ReadAt(buf, off); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
	}
	return randomReads, ctx.Err()
}

func createUnlink(ctx context.Context, s *subject) (int64, error) {
	if err := makeFiles(s, "new"); err != nil {
		return 0, err
	}
	for i := range small {
		if err := os.Remove(s.file(fmt.Sprintf("new%d", i))); err != nil {
			return 0, err
		}
	}
	return 2 * small, ctx.Err()
}

func makeFiles(s *subject, prefix string) error {
	for i := range small {
		f, err := os.Create(s.file(fmt.Sprintf("%s%d", prefix, i)))
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// statFiles looks for names that are not there.
func statFiles(ctx context.Context, s *subject) (int64, error) {
	for i := range small {
		if _, err := os.Lstat(s.file(fmt.Sprintf("absent%d", i))); err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, err
		}
	}
	return small, ctx.Err()
}
