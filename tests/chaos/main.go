// Chaos attacks a cluster of three nodes and checks its answers:
//
//	go run ./tests/chaos [-minutes 10] [-seed N] [-mode static|etcd|both]
//	                     [-slack 30s] [-keep] [-hmcfs PATH]
//
// Programs on the real mounts of all nodes publish and receive, set and remove keys, write,
// rename, copy and combine files, while daemons are killed and stopped, links go down and drop
// frames, and members of etcd are killed and wiped. Package judge has the checked properties,
// package lab the cluster.
//
// It prints the seed, a line for each fault, and a summary. If a property does not hold, it
// exits with status 1 and leaves the histories and the daemons' logs in a directory that it
// names. The seed determines the operations and faults; their interleaving depends on the
// machine, so a seed need not reproduce a failure.
//
// Everything runs in mount, process and network namespaces of its own, and so ends with the
// program, however that ends. It needs root, FUSE, /dev/net/tun, ip and nsenter, and for etcd
// Debian's etcd-server.
//
// # Lock order
//
// Each lock guards one thing, and no lock is acquired while another is held.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/tests/sandbox"
)

// settings holds the values of the flags and the destination of the output.
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

// start parses the flags, runs the attack, and returns the exit status.
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
	if dir := sandbox.Inside(); dir != "" {
		err = inside(ctx, s, dir)
	} else {
		err = sandbox.Run(ctx, sandbox.Options{
			Name: "chaos", Hmcfs: s.program, Args: append(args, "-seed", fmt.Sprint(s.seed)), Keep: s.keep, Out: out,
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	return 0
}

// errInterrupted reports that the run was interrupted before it checked anything.
var errInterrupted = errors.New("interrupted: what was not seen on the way is not judged")

// inside runs each mode in the namespaces.
func inside(ctx context.Context, s settings, dir string) error {
	if err := sandbox.Settle(dir); err != nil {
		return err
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
			errs = append(errs, attack(ctx, s, mode, dir, filepath.Join(sandbox.Scratch(dir), mode)))
		}
	}
	return errors.Join(errs...)
}
