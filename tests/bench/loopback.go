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
)

// loopbackPackage is go-fuse's own example, in the version that hmcfs is
// built with.
const loopbackPackage = "github.com/hanwen/go-fuse/v2/example/loopback"

// startLoopback builds the example and mounts a directory of the tmpfs by it.
func (l *lab) startLoopback(ctx context.Context) error {
	program := filepath.Join(l.dir, "loopback")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, loopbackPackage)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if _, err := output(build); err != nil {
		return err
	}
	l.loop = filepath.Join(l.dir, "loop")
	origin := l.on("loop")
	if err := errors.Join(os.Mkdir(l.loop, 0o700), os.Mkdir(origin, 0o700)); err != nil {
		return err
	}
	cmd := exec.Command(program, "-directmount", l.loop, origin)
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	l.later(func() error {
		if err := unix.Unmount(l.loop, 0); err != nil {
			return errors.Join(fmt.Errorf("unmount %s: %w", l.loop, err),
				unix.Unmount(l.loop, unix.MNT_DETACH), cmd.Process.Kill(), cmd.Wait())
		}
		return cmd.Wait()
	})
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "Mounted") {
			return nil
		}
	}
	return errors.Join(errors.New("ended before it was mounted"), lines.Err())
}
