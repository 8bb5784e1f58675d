// Attack has unprivileged users attack a mount that another user works on:
//
//	go run ./tests/attack [-minutes 10] [-seed N] [-ratio 10] [-slack 30s]
//	                      [-cgroup 512MiB] [-oom] [-keep] [-hmcfs PATH]
//
// Two nodes are mounted with --allow-other. On each, a victim writes, reads back, lists, sets
// keys and publishes, in its own directories and in one that all users may write to, on its own
// and on the other node. Then attackers with other user IDs do everything that a user can do to
// the mount: see the list in acts.go.
//
// Attack checks that the victim's bytes, names, modes and owners are unchanged and it gets no
// error; that nothing forbidden by modes and owners was permitted; that the victim's 99th
// percentile of each operation, except for moves between directories, is at most -ratio times
// the value before the attack (0 only reports it); that the daemons live, their memory stays
// bounded and their descriptors are closed again; that fsck reports nothing; and that
// unmounting completes. With -cgroup each daemon runs in a memory cgroup of that size, with its
// records below TMPDIR, which should be on a disk. With -oom the kernel kills one for lack of
// memory at the end, and the next mount must have every host file.
//
// It prints the seed and a summary. If a property does not hold, it exits with status 1 and
// leaves the daemons' logs in a directory that it names. The seed determines the operations;
// their interleaving depends on the machine.
//
// Everything runs in namespaces of its own: see package sandbox. It needs root, FUSE,
// /dev/net/tun, ip and nsenter.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/sandbox"
)

// settings holds the values of the flags and the destination of the output.
type settings struct {
	minutes float64
	seed    uint64
	ratio   float64
	slack   time.Duration
	cgroup  devices.Size
	oom     bool
	keep    bool
	program string
	out     io.Writer
}

func main() { os.Exit(start(os.Args[1:], os.Stdout)) }

// start parses the flags, runs the attack, and returns the exit status.
func start(args []string, out io.Writer) int {
	if text := os.Getenv(roleEnv); text != "" {
		return play(text, out)
	}
	s := settings{out: out}
	flags := flag.NewFlagSet("attack", flag.ContinueOnError)
	flags.Float64Var(&s.minutes, "minutes", 10, "how long the attack lasts")
	flags.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "what decides what is tried")
	flags.Float64Var(&s.ratio, "ratio", 10, "how many times longer than alone the victim's 99th percentile may be; 0 only reports it")
	flags.DurationVar(&s.slack, "slack", 30*time.Second, "how long what must end may take on this machine")
	flags.Func("cgroup", "the memory of the cgroup that each daemon runs in, such as 512MiB", func(text string) (err error) {
		s.cgroup, err = devices.ParseSize(text)
		return err
	})
	flags.BoolVar(&s.oom, "oom", false, "have the kernel kill a daemon at the end for want of memory; needs -cgroup")
	flags.BoolVar(&s.keep, "keep", false, "keep logs also where all is well")
	flags.StringVar(&s.program, "hmcfs", "", "the program to attack; built from the current directory by default")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if s.oom && s.cgroup == 0 {
		fmt.Fprintln(os.Stderr, "attack: -oom needs -cgroup SIZE")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if dir := sandbox.Inside(); dir != "" {
		err = inside(ctx, s, dir)
	} else {
		err = sandbox.Run(ctx, sandbox.Options{
			Name: "attack", Hmcfs: s.program, Args: append(args, "-seed", fmt.Sprint(s.seed)), Keep: s.keep, Out: out,
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		return 1
	}
	return 0
}

// roleEnv is the environment variable that contains the role of another user's process.
const roleEnv = "HMCFS_ATTACK_ROLE"

// role describes what another user's process does in the attack.
type role struct {
	// Kind is "victim", "attacker" or "hog".
	Kind string `json:"kind"`
	Name string `json:"name"`
	Seed uint64 `json:"seed"`
	// Mount is the mount point, and Other the name of the other node.
	Mount string `json:"mount"`
	Other string `json:"other"`
	// Addresses are the addresses at which the nodes listen, and Runtime their runtime
	// directories.
	Addresses []string `json:"addresses"`
	Runtime   []string `json:"runtime"`
	// Victims are the names of the victims' directories.
	Victims []string `json:"victims"`
	// VictimUID is the user ID of the victims, whose paths are squatted.
	VictimUID int `json:"victim_uid"`
}

// play runs the process of a role and returns its exit status.
func play(text string, out io.Writer) int {
	var r role
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		say := &speaker{out: json.NewEncoder(out)}
		switch r.Kind {
		case "victim":
			err = newVictim(r, say).work(os.Stdin)
		case "attacker":
			err = newAttacker(r, say).work(os.Stdin)
		case "hog":
			err = hog()
		default:
			err = errors.New("no such role")
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "attack: %s %s: %v\n", r.Kind, r.Name, err)
		return 1
	}
	return 0
}
