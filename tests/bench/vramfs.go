package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/hmcfs/hmcfs/devices"
)

// startVramfs mounts vramfs on its first device, if there is a program.
func (l *lab) startVramfs(ctx context.Context) error {
	if l.opts.vramfs == "" {
		return nil
	}
	point := filepath.Join(l.dir, "vramfs")
	if err := os.Mkdir(point, 0o700); err != nil {
		return err
	}
	cmd := exec.Command(l.opts.vramfs, point, fmt.Sprintf("%dM", 2*uint64(l.opts.size/devices.MiB)+64), "-f")
	if err := cmd.Start(); err != nil {
		return err
	}
	l.unmountLater(point, cmd)
	for begin := time.Now(); ; {
		mounted, err := mountinfo.Mounted(point)
		if err != nil {
			return err
		}
		if mounted {
			l.vramfs = point
			return nil
		}
		if time.Since(begin) > patience {
			return errors.New("it does not mount; its first OpenCL device must be of the type that it looks for")
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
