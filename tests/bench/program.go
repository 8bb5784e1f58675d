package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// ddWrite writes a new file by dd in calls of 1 MiB.
func (l *lab) ddWrite(name, path string) side {
	return side{
		Name:    name,
		Prepare: func(context.Context) error { return removeAll(path) },
		Run: func(ctx context.Context) (float64, error) {
			return dd(ctx, "if=/dev/zero", "of="+path, "bs=1M", fmt.Sprintf("count=%d", uint64(l.opts.size)>>20))
		},
	}
}

// ddRead reads a file by dd in calls of 1 MiB.
func (l *lab) ddRead(name, path string) side {
	return side{
		Name:    name,
		Prepare: func(ctx context.Context) error { return l.ensure(ctx, path) },
		Run: func(ctx context.Context) (float64, error) {
			return dd(ctx, "if="+path, "of=/dev/null", "bs=1M")
		},
	}
}

// dd runs the program and returns the bytes per second that it reports.
func dd(ctx context.Context, args ...string) (float64, error) {
	cmd := exec.CommandContext(ctx, "dd", args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("dd %v: %w: %s", args, err, out)
	}
	return ddRate(string(out))
}

// ddRate parses dd's report: "1073741824 bytes (…) copied, 0.12 s, 9.2 GB/s".
func ddRate(report string) (float64, error) {
	m := regexp.MustCompile(`(?m)^(\d+) bytes .*copied, ([0-9.e-]+) s,`).FindStringSubmatch(report)
	if m == nil {
		return 0, fmt.Errorf("dd says %q", report)
	}
	bytes, err1 := strconv.ParseFloat(m[1], 64)
	took, err2 := strconv.ParseFloat(m[2], 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, err
	}
	return bytes / took, nil
}

// ensure writes a file of the lab's size with dd unless it exists.
func (l *lab) ensure(ctx context.Context, path string) error {
	info, err := os.Stat(path)
	if err == nil && info.Size() == int64(l.opts.size) {
		return nil
	}
	_, err = l.ddWrite("", path).Run(ctx)
	return err
}

// cp copies with the program cp into a new file.
func (l *lab) cp(name, src, dst string) side {
	return side{
		Name:    name,
		Prepare: func(ctx context.Context) error { return errors.Join(l.ensure(ctx, src), removeAll(dst)) },
		Run: bench.Timed(func(ctx context.Context) (int64, error) {
			_, err := measure.Output(exec.CommandContext(ctx, "cp", src, dst))
			return int64(l.opts.size), err
		}),
	}
}

// removeAll removes files that may not exist.
func removeAll(paths ...string) error {
	var errs []error
	for _, p := range paths {
		errs = append(errs, os.RemoveAll(p))
	}
	return errors.Join(errs...)
}

// removing returns a function, for the field after, that removes files.
func removing(paths ...string) func() error {
	return func() error { return removeAll(paths...) }
}
