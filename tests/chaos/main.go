// Chaos attacks a cluster of three nodes and checks what it answers:
//
//	go run ./tests/chaos [-minutes 10] [-seed N] [-mode static|etcd|both]
//	                     [-slack 30s] [-keep] [-hmcfs PATH]
//
// Programs on the real mounts of all nodes publish and receive, set and remove
// keys, write, rename and copy files and combine them, while daemons are killed
// and stopped, links go down and lose frames, and members of etcd are killed
// and wiped. Package judge has the properties, package lab the cluster.
//
// It prints the seed, a line for each fault, and a summary; it ends with 1
// where a property does not hold, and then leaves the histories and the
// daemons' logs in a directory that it names. The seed decides what is tried;
// how it interleaves is up to the machine, so a seed need not show the same
// twice.
//
// Everything runs in mount, process and network namespaces of its own, and so
// ends with the program, however that ends. It needs root, FUSE, /dev/net/tun,
// ip and nsenter, and for etcd Debian's etcd-server.
//
// # Lock order
//
// Each lock guards one thing, and none is taken under another.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// settings hold the values of the flags, and where the run prints.
type settings struct {
	minutes float64
	seed    uint64
	mode    string
	slack   time.Duration
	keep    bool
	program string
	out     io.Writer
}

func main() { os.Exit(start(os.Args[1:], os.Stdout)) }

// start returns the exit status.
func start(args []string, out io.Writer) int {
	s := settings{out: out}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.Float64Var(&s.minutes, "minutes", 10, "how long each mode is attacked")
	flags.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "what decides what is tried")
	flags.StringVar(&s.mode, "mode", "both", "how the nodes find each other: static, etcd or both, one after the other")
	flags.DurationVar(&s.slack, "slack", 30*time.Second, "how much longer than documented an operation may take on this machine")
	flags.BoolVar(&s.keep, "keep", false, "keep histories and logs also where all is well")
	flags.StringVar(&s.program, "hmcfs", "", "the program to attack; built from the current directory by default")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if dir := os.Getenv(insideEnv); dir != "" {
		err = inside(ctx, s, dir)
	} else {
		err = outside(ctx, s, args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	return 0
}

// errInterrupted is the end of a run that has judged nothing.
var errInterrupted = errors.New("interrupted: what was not seen on the way is not judged")

// errViolated is the end of a run with violations, which it has printed.
var errViolated = errors.New("properties do not hold")

// insideEnv names, for the process in the namespaces, the working directory.
const insideEnv = "HMCFS_CHAOS_INSIDE"

// outside runs the program again in namespaces of its own, and removes what it
// leaves where nobody will want it.
func outside(ctx context.Context, s settings, args []string) error {
	dir, err := os.MkdirTemp("", "hmcfs-chaos-")
	if err != nil {
		return err
	}
	if s.program == "" {
		s.program = filepath.Join(dir, "hmcfs")
		build := exec.CommandContext(ctx, "go", "build", "-o", s.program, "./cmd/hmcfs")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, failed := build.CombinedOutput(); failed != nil {
			return errors.Join(fmt.Errorf("build hmcfs; run in the repository or pass -hmcfs: %w: %s", failed, text), os.RemoveAll(dir))
		}
	}
	cmd := exec.Command("/proc/self/exe", append(args, "-seed", fmt.Sprint(s.seed), "-hmcfs", s.program)...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideEnv+"="+dir, "TMPDIR="+filepath.Join(dir, "run"))
	cmd.Stdout, cmd.Stderr = s.out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL, Setpgid: true,
	}
	err = attend(ctx, cmd)
	if err != nil && ctx.Err() == nil || s.keep {
		fmt.Fprintf(s.out, "histories and logs are in %s\n", dir)
		return errors.Join(err, os.Remove(filepath.Join(dir, "run")))
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// attend runs the command, which ends with this process, and passes a signal on.
func attend(ctx context.Context, cmd *exec.Cmd) error {
	// A parent's death signal comes with the end of the thread that has started
	// the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start in namespaces; are you root? %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(os.Interrupt) }) // it may have ended
	defer stop()
	err := cmd.Wait()
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		return errViolated
	}
	return err
}

// inside makes the namespaces fit for what runs there, and runs each mode.
func inside(ctx context.Context, s settings, dir string) error {
	tmp := filepath.Join(dir, "run")
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
	var modes []string
	switch s.mode {
	case "both":
		modes = []string{"static", "etcd"}
	case "static", "etcd":
		modes = []string{s.mode}
	default:
		return fmt.Errorf("-mode %q: use static, etcd or both", s.mode)
	}
	var errs []error
	for _, mode := range modes {
		if ctx.Err() == nil {
			errs = append(errs, attack(ctx, s, mode, dir, filepath.Join(tmp, mode)))
		}
	}
	return errors.Join(errs...)
}
