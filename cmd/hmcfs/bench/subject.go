package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// subject is a directory to measure. The files a and b have the size of the run; b exists
// only at times.
type subject struct {
	name string
	dir  string
	opts *Options
}

// newSubject creates a directory below parent, which close removes.
func newSubject(name, parent string, o *Options) (*subject, error) {
	if err := room(name, parent, 2*o.Size); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "hmcfs-bench-")
	if err != nil {
		return nil, fmt.Errorf("measure %s: %w", name, err)
	}
	s := &subject{name: name, dir: dir, opts: o}
	if err := os.Mkdir(s.path("names"), 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("measure %s: %w", name, err), s.close())
	}
	return s, nil
}

// room checks that a directory has n bytes free.
func room(name, dir string, n devices.Size) error {
	var st unix.Statfs_t
	if _, err := retry(func() (int, error) { return 0, unix.Statfs(dir, &st) }); err != nil {
		return fmt.Errorf("free memory of %s: %w", name, err)
	}
	if free := devices.Size(st.Bavail) * devices.Size(st.Frsize); free < n {
		return fmt.Errorf("%s has %v free and %v are needed; use a smaller --size, or fewer --device", name, free, n)
	}
	return nil
}

func (s *subject) close() error { return os.RemoveAll(s.dir) }

func (s *subject) path(name string) string { return filepath.Join(s.dir, name) }

// ensure writes a file unless it exists with the right size.
func (s *subject) ensure(ctx context.Context, name string) error {
	info, err := os.Stat(s.path(name))
	if err == nil && info.Size() == int64(s.opts.Size) {
		return nil
	}
	_, err = Write(ctx, s.path(name), int64(s.opts.Size))
	return err
}

// with returns the Prepare of a workload that reads files.
func (s *subject) with(names ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, name := range names {
			if err := s.ensure(ctx, name); err != nil {
				return err
			}
		}
		return nil
	}
}
