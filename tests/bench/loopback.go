package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/measure"
)

// loopbackPackage is go-fuse's own example, in the version that hmcfs is built with.
const loopbackPackage = "github.com/hanwen/go-fuse/v2/example/loopback"

// startLoopbacks builds the example and mounts a directory of the tmpfs with it twice:
// unchanged, and with permission checks by the kernel, as with hmcfs.
func (l *lab) startLoopbacks(ctx context.Context) error {
	program := filepath.Join(l.dir, "loopback")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, loopbackPackage)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if _, err := measure.Output(build); err != nil {
		return err
	}
	l.loop, l.checked = filepath.Join(l.dir, "loop"), filepath.Join(l.dir, "checked")
	// The example sets default_permissions only with this flag.
	return errors.Join(l.startLoopback(program, l.loop), l.startLoopback(program, l.checked, "-allow-other"))
}

// startLoopback mounts a new directory of the tmpfs at a point.
func (l *lab) startLoopback(program, point string, flags ...string) error {
	origin := l.on(filepath.Base(point))
	if err := errors.Join(os.Mkdir(point, 0o700), os.Mkdir(origin, 0o700)); err != nil {
		return err
	}
	cmd := exec.Command(program, append(flags, "-directmount", point, origin)...)
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	l.unmountLater(point, cmd)
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "Mounted") {
			return nil
		}
	}
	return errors.Join(errors.New("ended before it was mounted"), lines.Err())
}

// unmountLater unmounts at the end of the lab what a program serves, and waits for the program.
func (l *lab) unmountLater(point string, cmd *exec.Cmd) {
	l.Later(func() error {
		if err := unix.Unmount(point, 0); err != nil {
			return errors.Join(fmt.Errorf("unmount %s: %w", point, err),
				unix.Unmount(point, unix.MNT_DETACH), cmd.Process.Kill(), cmd.Wait())
		}
		return cmd.Wait()
	})
}
