package holder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"go.uber.org/zap"
)

// Launch starts a holder that listens at a path, and connects to it. command is that of a process
// which calls Run. It must not be called while another process may do the same: the caller has the
// lock of the runtime directory.
func Launch(command *exec.Cmd, socket string) (*Client, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("start the holder: %w", err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("start the holder: %w", err)
	}
	l.SetUnlinkOnClose(false)
	file, err := l.File()
	if err = errors.Join(err, l.Close()); err != nil {
		return nil, fmt.Errorf("start the holder: %w", err)
	}
	command.Args = append(command.Args, socket) // tells whose it is in a list of processes
	command.Dir = "/"                           // it keeps no file system busy
	command.ExtraFiles = []*os.File{file}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // ^C must not reach it
	if err = errors.Join(command.Start(), file.Close()); err != nil {
		return nil, fmt.Errorf("start the holder: %w", err)
	}
	go command.Wait() //nolint:errcheck // it is reaped if it ends before this process
	return Dial(socket)
}

// Run is the process that Launch starts: it serves the listener that is its descriptor 3.
func Run(ctx context.Context, stop <-chan struct{}, log *zap.Logger) error {
	file := os.NewFile(3, "listener")
	l, err := net.FileListener(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("serve as a holder: %w", err)
	}
	unix, ok := l.(*net.UnixListener)
	if !ok {
		return errors.Join(fmt.Errorf("serve as a holder: descriptor 3 is a %T", l), l.Close())
	}
	// The log may be a pipe whose reader ends. The daemons inherit this.
	signal.Ignore(syscall.SIGPIPE)
	before := avoidOOM(log)
	return Serve(ctx, Options{Listener: unix, Stop: stop, OOM: before, Logger: log})
}

// avoidOOM makes the kernel end other processes first when memory is short. Only root may; for
// others, and where /proc is read-only, the holder is as likely to be ended as others of its size. It
// returns the value from before, which is that of the daemon.
func avoidOOM(log *zap.Logger) (before string) {
	const path = "/proc/self/oom_score_adj"
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte("-900\n"), 0)
	}
	if err != nil {
		log.Debug("can't ask the kernel to spare the holder when memory is short", zap.Error(err))
		return ""
	}
	return string(data)
}

// setOOM gives a daemon the value that it would have without a holder.
func setOOM(pid int, value string) {
	if value != "" {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(value), 0) // it may have ended
	}
}
