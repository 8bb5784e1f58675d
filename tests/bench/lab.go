package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/opencl"
)

// lab has what is measured: a mount, a tmpfs, and go-fuse's loopback example
// on that tmpfs.
type lab struct {
	undo

	opts    options
	dir     string // everything temporary
	tmpfs   string
	loop    string // the example as it is
	checked string // the example with default_permissions
	mnt     *mount
	opencl  *opencl.Driver
}

// newLab sets everything up, or leaves nothing behind.
func newLab(ctx context.Context, o options) (l *lab, err error) {
	l = &lab{opts: o, opencl: opencl.NewDriver(opencl.Options{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if os.Geteuid() != 0 {
		return l, errors.New("mounting a tmpfs and dropping caches needs root")
	}
	if l.opts.hmcfs, err = filepath.Abs(o.hmcfs); err != nil {
		return l, err
	}
	if l.dir, err = l.folder(); err != nil {
		return l, err
	}
	tmpfs, done, err := bench.PrivateTmpfs(3*o.size + devices.GiB)
	if err != nil {
		return l, err
	}
	l.tmpfs = tmpfs
	l.later(done)
	if err = l.startLoopbacks(ctx); err != nil {
		return l, fmt.Errorf("loopback: %w", err)
	}
	size := func(n devices.Size) string { return fmt.Sprintf("size=%d", uint64(n)) }
	l.mnt, err = l.mountAt(ctx, "mnt",
		"host,"+size(3*o.size), "opencl:0,"+size(3*o.size), "sim:0,"+size(3*o.size),
		"sim:1,"+size(2*o.size)+",bandwidth=20GB/s", "sim:2,"+size(2*o.size)+",bandwidth=20GB/s")
	return l, err
}

// in is a path on the mount.
func (l *lab) in(parts ...string) string {
	return filepath.Join(append([]string{l.mnt.point}, parts...)...)
}

// on is a path on the tmpfs.
func (l *lab) on(parts ...string) string {
	return filepath.Join(append([]string{l.tmpfs}, parts...)...)
}

// rows lists the rows of the table in order.
func (l *lab) rows() []row {
	return slices.Concat(l.hostRows(), l.openclRows(), l.copyRows(), l.nameRows(), l.memoryRows(), l.keyRows())
}
