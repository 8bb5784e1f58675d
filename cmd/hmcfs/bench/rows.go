package bench

import (
	"context"
	"os"
	"time"
)

// The units of rows.
const (
	bytesPerSecond = "B/s"
	opsPerSecond   = "ops/s"
	times          = "x"
)

// randomReads is the number of 4 KiB reads in one round.
const randomReads = 5000

// workload is a row that every directory has.
type workload struct {
	what, unit string
	probe      func(s *subject) Probe
}

// workloads lists the rows. A workload may use files left by another one.
func workloads() []workload {
	return []workload{
		{"write 1 MiB", bytesPerSecond, (*subject).write},
		{"read 1 MiB", bytesPerSecond, reading(Read)},
		{"mmap read", bytesPerSecond, reading(ReadMapped)},
		{"random read 4 KiB", opsPerSecond, reading(func(ctx context.Context, path string) (int64, error) {
			return RandomRead(ctx, path, randomReads)
		})},
		{"copy inside", bytesPerSecond, func(s *subject) Probe { return s.copyTo(s) }},
		{"two readers of one", times, (*subject).twoReaders},
		{"create and unlink", opsPerSecond, (*subject).createUnlink},
		{"stat", opsPerSecond, (*subject).stat},
	}
}

func (s *subject) write() Probe {
	prepare := func(context.Context) error { return os.RemoveAll(s.path("a")) }
	return Probe{Prepare: prepare, Run: Timed(func(ctx context.Context) (int64, error) {
		return Write(ctx, s.path("a"), int64(s.opts.Size))
	})}
}

// reading measures something that reads a file.
func reading(fn func(ctx context.Context, path string) (int64, error)) func(*subject) Probe {
	return func(s *subject) Probe {
		return Probe{Prepare: s.with("a"), Run: Timed(func(ctx context.Context) (int64, error) { return fn(ctx, s.path("a")) })}
	}
}

// copyTo measures a copy to a directory.
func (s *subject) copyTo(dst *subject) Probe {
	prepare := func(ctx context.Context) error {
		if err := s.ensure(ctx, "a"); err != nil {
			return err
		}
		return os.RemoveAll(dst.path("b"))
	}
	return Probe{Prepare: prepare, Run: Timed(func(ctx context.Context) (int64, error) {
		return Copy(ctx, dst.path("b"), s.path("a"))
	})}
}

// twoReaders measures the speedup of two readers of one file each, compared with a single
// reader.
func (s *subject) twoReaders() Probe {
	rate := func(ctx context.Context, paths ...string) (float64, error) {
		begin := time.Now()
		n, err := ReadAll(ctx, paths...)
		return float64(n) / time.Since(begin).Seconds(), err
	}
	return Probe{Prepare: s.with("a", "b"), Run: func(ctx context.Context) (float64, error) {
		one, err := rate(ctx, s.path("a"))
		if err != nil {
			return 0, err
		}
		two, err := rate(ctx, s.path("a"), s.path("b"))
		return two / one, err
	}}
}

func (s *subject) createUnlink() Probe {
	return Probe{Run: Timed(func(ctx context.Context) (int64, error) {
		return CreateUnlink(ctx, s.path("names"), s.opts.Files)
	})}
}

// stat examines files whose names the kernel has dropped from its caches, if that is
// permitted.
func (s *subject) stat() Probe {
	n := s.opts.Files
	prepare := func(ctx context.Context) error {
		if err := MakeFiles(ctx, s.path("names"), n); err != nil {
			return err
		}
		_ = DropNames() // a note in the report says so
		return nil
	}
	return Probe{Prepare: prepare, Run: func(ctx context.Context) (float64, error) {
		rate, err := Timed(func(ctx context.Context) (int64, error) {
			return StatFiles(ctx, s.path("names"), n)
		})(ctx)
		if err != nil {
			return 0, err
		}
		return rate, RemoveFiles(ctx, s.path("names"), n)
	}}
}
