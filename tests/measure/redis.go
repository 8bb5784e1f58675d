package measure

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Redis is a server without persistence that listens at a Unix socket only.
type Redis struct {
	Socket string
	server *exec.Cmd
}

// redisPatience bounds the start of the server.
const redisPatience = time.Minute

// StartRedis starts a server with its files in an existing directory. Stop must be called.
func StartRedis(ctx context.Context, dir string) (*Redis, error) {
	r := &Redis{Socket: filepath.Join(dir, "socket")}
	r.server = exec.CommandContext(ctx, "redis-server", "--port", "0", "--unixsocket", r.Socket, "--dir", dir,
		"--save", "", "--appendonly", "no", "--logfile", filepath.Join(dir, "log"))
	r.server.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	r.server.Cancel = func() error { return r.server.Process.Signal(unix.SIGTERM) }
	if err := r.server.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(redisPatience); time.Now().Before(deadline) && ctx.Err() == nil; {
		if _, err := os.Stat(r.Socket); err == nil {
			return r, nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil, errors.Join(errors.New("redis-server does not listen"), r.Stop())
}

// Stop ends the server, which says nothing of use at a signal.
func (r *Redis) Stop() error {
	if err := r.server.Process.Signal(unix.SIGTERM); err != nil {
		return err
	}
	err := r.server.Wait()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return nil
	}
	return err
}
