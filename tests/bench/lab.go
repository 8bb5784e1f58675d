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
	"github.com/hmcfs/hmcfs/tests/measure"
)

// lab holds what is measured: a mount, a tmpfs, and go-fuse's loopback example on that tmpfs.
type lab struct {
	measure.Undo

	opts    options
	dir     string // everything temporary
	tmpfs   string
	loop    string // the example unchanged
	checked string // the example with default_permissions
	vramfs  string // a mount of vramfs, with options.vramfs
	mnt     *measure.Mount
	opencl  *opencl.Driver
}

// setUp mounts everything.
func (l *lab) setUp(ctx context.Context) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("mounting a tmpfs and dropping caches needs root")
	}
	if l.dir, err = l.Folder(); err != nil {
		return err
	}
	tmpfs, done, err := bench.PrivateTmpfs(3*l.opts.size + devices.GiB)
	if err != nil {
		return err
	}
	l.tmpfs = tmpfs
	l.Later(done)
	if err = l.startLoopbacks(ctx); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	if err = l.startVramfs(ctx); err != nil {
		return fmt.Errorf("vramfs: %w", err)
	}
	size := func(files uint64) string { return fmt.Sprintf("size=%d", files*uint64(l.opts.size)) }
	l.mnt, err = l.mountAt(ctx, "mnt",
		"host,"+size(3), "opencl:0,"+size(3), "sim:0,"+size(3), "sim:1,"+size(2)+",bandwidth=20GB/s", "sim:2,"+size(2)+",bandwidth=20GB/s")
	return err
}

// in returns a path on the mount.
func (l *lab) in(parts ...string) string { return l.mnt.Path(parts...) }

// on returns a path on the tmpfs.
func (l *lab) on(parts ...string) string {
	return filepath.Join(append([]string{l.tmpfs}, parts...)...)
}

// rows lists the rows of the table in order.
func (l *lab) rows() []row {
	return slices.Concat(l.hostRows(), l.openclRows(), l.copyRows(), l.nameRows(), l.memoryRows(), l.keyRows())
}
