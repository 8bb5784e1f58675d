package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// ErrFailed is the result of a program that has printed its findings itself.
var ErrFailed = errors.New("properties do not hold")

// Options configures a run.
type Options struct {
	// Name is the program's name, used in the names of directories.
	Name string
	// Hmcfs is the path of hmcfs; by default, it is built from the current directory.
	Hmcfs string
	// Args are the program's arguments. The path of hmcfs is added to them, as -hmcfs.
	Args []string
	// Keep keeps the directory even if the run succeeds.
	Keep bool
	// Out receives the program's output.
	Out io.Writer
}

// insideEnv passes the working directory to the process in the namespaces.
const insideEnv = "HMCFS_SANDBOX_INSIDE"

// Inside returns the working directory of a program that Run has started, or "". Logs in it
// outlive a run that fails.
func Inside() string { return os.Getenv(insideEnv) }

// Scratch returns a subdirectory of a working directory that disappears with the process: a
// tmpfs, which also holds temporary files.
func Scratch(dir string) string { return filepath.Join(dir, "run") }

// Run runs the program again in namespaces of its own, and removes its files unless they are
// worth keeping. It returns ErrFailed if the program has failed.
func Run(ctx context.Context, o Options) error {
	dir, err := os.MkdirTemp("", "hmcfs-"+o.Name+"-")
	if err != nil {
		return err
	}
	if o.Hmcfs == "" {
		o.Hmcfs = filepath.Join(dir, "hmcfs")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.Hmcfs, "./cmd/hmcfs")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, failed := build.CombinedOutput(); failed != nil {
			return errors.Join(fmt.Errorf("build hmcfs; run in the repository or pass -hmcfs: %w: %s", failed, text), os.RemoveAll(dir))
		}
	}
	// Daemons are started in other directories.
	if o.Hmcfs, err = filepath.Abs(o.Hmcfs); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", append(o.Args, "-hmcfs", o.Hmcfs)...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideEnv+"="+dir, "TMPDIR="+Scratch(dir))
	cmd.Stdout, cmd.Stderr = o.Out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL, Setpgid: true,
	}
	err = attend(ctx, cmd)
	if err != nil && ctx.Err() == nil || o.Keep {
		fmt.Fprintf(o.Out, "what it has written and the daemons' logs are in %s\n", dir)
		return errors.Join(err, os.Remove(Scratch(dir)))
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// attend runs the command, which ends with this process, and forwards signals to it.
func attend(ctx context.Context, cmd *exec.Cmd) error {
	// The parent-death signal is sent at the end of the thread that started the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start in namespaces; are you root? %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(os.Interrupt) }) // it may have ended
	defer stop()
	err := cmd.Wait()
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		return ErrFailed
	}
	return err
}

// Settle prepares the namespaces for use. The program calls it first, inside them.
func Settle(dir string) error {
	tmp := Scratch(dir)
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	for _, m := range []struct {
		from, to, kind string
		flags          uintptr
	}{
		{"", "/", "", syscall.MS_REC | syscall.MS_PRIVATE},
		{"proc", "/proc", "proc", 0},
		{"tmpfs", "/dev/shm", "tmpfs", 0},
		{"tmpfs", "/run", "tmpfs", 0},
		{"tmpfs", tmp, "tmpfs", 0},
	} {
		if err := syscall.Mount(m.from, m.to, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.to, err)
		}
	}
	return nil
}
