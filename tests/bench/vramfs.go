package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// startVramfs mounts vramfs on its first device, if there is a program.
func (l *lab) startVramfs(ctx context.Context) error {
	if l.opts.vramfs == "" {
		return nil
	}
	l.vramfs = filepath.Join(l.dir, "vramfs")
	if err := os.Mkdir(l.vramfs, 0o700); err != nil {
		return err
	}
	// Without -f it returns when it is mounted, and serves in the background.
	size := fmt.Sprintf("%dM", 2*uint64(l.opts.size/devices.MiB)+64)
	if _, err := measure.Output(exec.CommandContext(ctx, l.opts.vramfs, l.vramfs, size)); err != nil {
		return err
	}
	l.Later(func() error {
		err := unix.Unmount(l.vramfs, 0)
		if err != nil {
			err = errors.Join(fmt.Errorf("unmount %s: %w", l.vramfs, err), unix.Unmount(l.vramfs, unix.MNT_DETACH))
		}
		return err
	})
	return nil
}
