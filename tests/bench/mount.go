package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
)

// mount is one mount of the program that is measured.
type mount struct {
	hmcfs string
	point string
	pid   int
	// took is the duration of the command that mounted it.
	took time.Duration
}

// mountAt mounts devices below the lab's directory; the lab's close unmounts.
func (l *lab) mountAt(ctx context.Context, name string, specs ...string) (*mount, error) {
	m, err := l.mountOn(ctx, name, filepath.Join(l.dir, name+".state"), specs...)
	if err == nil {
		l.later(func() error { return m.unmount(ctx) })
	}
	return m, err
}

// mountOn mounts with a state directory; the caller unmounts.
func (l *lab) mountOn(ctx context.Context, name, state string, specs ...string) (*mount, error) {
	m := &mount{hmcfs: l.opts.hmcfs, point: filepath.Join(l.dir, name)}
	if err := os.MkdirAll(m.point, 0o700); err != nil {
		return nil, err
	}
	args := []string{"mount", "--state-dir", state, "--runtime-dir", m.runtime()}
	for _, spec := range specs {
		args = append(args, "--device", spec)
	}
	begin := time.Now()
	_, err := output(exec.CommandContext(ctx, m.hmcfs, append(args, m.point)...))
	m.took = time.Since(begin)
	if err != nil {
		return m, err
	}
	st, err := m.status(ctx)
	if err != nil {
		return m, errors.Join(err, m.unmount(ctx))
	}
	m.pid = st.PID
	return m, nil
}

// dropHost takes away the host tier that a dead daemon, or one that was told
// to keep it, has left.
func (m *mount) dropHost() { _ = unix.Unmount(m.runtime()+"/host", unix.MNT_DETACH) }

// runtime is the daemon's runtime directory.
func (m *mount) runtime() string { return m.point + ".run" }

// unmount ends the daemon. One that does not end is killed, and its mounts
// are detached.
//
// It works after the context has ended, too: it is how a run cleans up.
func (m *mount) unmount(ctx context.Context, flags ...string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	args := append(append([]string{"umount"}, flags...), m.point)
	_, err := output(exec.CommandContext(ctx, m.hmcfs, args...))
	if err == nil {
		return nil
	}
	// What is not there any more need not be ended.
	_ = unix.Unmount(m.point, unix.MNT_DETACH)
	_ = unix.Kill(m.pid, unix.SIGKILL)
	m.dropHost()
	return err
}

// status asks the daemon; it does not have it count objects, which takes
// memory.
func (m *mount) status(ctx context.Context) (adminapi.Status, error) {
	return client.New(m.runtime()+"/admin.sock").Status(ctx, false)
}

// output runs a command and returns its standard output; an error has what
// it said.
func output(cmd *exec.Cmd) ([]byte, error) {
	var said strings.Builder
	cmd.Stderr = &said
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(said.String()))
	}
	return out, err
}
